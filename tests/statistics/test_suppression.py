"""Published tables do not determine a suppressed cell: an attacker tries it by linear programming."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

import fedspan as fs
from fedspan.statistics.describe.parts.suppression import (
    bounds,
    hidden_cells,
    hidden_groups,
    hidden_in_groups,
    hidden_in_table,
    list_sums,
    table_sums,
)

from .hospital_table import CATEGORIES, federated, patients, split

LEAST = 5


class Attacker:
    """Knows some cells of tables, that cells add up, and that a hidden cell is not negative."""

    def __init__(self):
        self.names, self.equations = {}, []

    def cell(self, name, value=None):
        at = self.names.setdefault(name, len(self.names))
        if value is not None and not np.isnan(value):
            self.equations.append(({at: 1.0}, float(value)))
        return at

    def adds_up(self, total, parts):
        row = {self.cell(part): 1.0 for part in parts}
        row[self.cell(total)] = -1.0
        self.equations.append((row, 0.0))

    def range_of(self, name):
        """Return the least and the greatest value that a cell can have."""
        A = np.zeros((len(self.equations), len(self.names)))
        for line, (row, _) in zip(A, self.equations, strict=True):
            line[list(row)] = list(row.values())
        b = [value for _, value in self.equations]
        goal = np.zeros(len(self.names))
        goal[self.names[name]] = 1.0
        found = [linprog(sign * goal, A_eq=A, b_eq=b, bounds=(0, None)) for sign in (1, -1)]
        return tuple(sign * (one.fun if one.status == 0 else -np.inf) for sign, one in zip((1, -1), found, strict=True))


def published(attacker, name, cells, rows, columns, total):
    """Let an attacker read a table with margins; NaN is suppressed."""
    r, c = cells.shape
    for i in range(r):
        for j in range(c):
            attacker.cell((name, i, j), cells[i, j])
        attacker.cell((name, i), rows[i])
        attacker.adds_up((name, i), [(name, i, j) for j in range(c)])
    for j in range(c):
        attacker.cell((name, "column", j), columns[j])
        attacker.adds_up((name, "column", j), [(name, i, j) for i in range(r)])
    attacker.cell((name, "all"), total)
    attacker.adds_up((name, "all"), [(name, i) for i in range(r)])


def at(cell, like):
    return np.arange(len(like)) == cell


def with_margins(counts):
    whole = np.zeros(np.add(counts.shape, 1))
    whole[:-1, :-1] = counts
    whole[-1] = whole[:-1].sum(axis=0)
    whole[:, -1] = whole[:, :-1].sum(axis=1)
    return whole


TABLES = hnp.arrays(int, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.integers(0, 30))


@settings(max_examples=40)
@given(TABLES, st.booleans())
def test_no_hidden_cell_of_a_table_can_be_solved_for(counts, public_rows):
    whole = with_margins(counts)
    if public_rows and np.any((whole[:, -1] > 0) & (whole[:, -1] < LEAST)):
        return
    sums = table_sums(*counts.shape, public_rows=public_rows)
    hidden = hidden_cells(whole.ravel(), sums, least=LEAST)
    small = (whole.ravel() > 0) & (whole.ravel() < LEAST)
    assert hidden[small].all()
    if hidden.all():
        return
    # Where an empty cell is visible that others do not determine, none is hidden, and the attacker knows it.
    empty = np.flatnonzero(~hidden & ~sums.public & (whole.ravel() == 0))
    lowest = int(any(bounds(whole.ravel(), sums, hidden | at(cell, hidden), cell, lowest=0)[1] > 0.5 for cell in empty))
    all_that_can_be = bool(hidden[~sums.public].all())
    for cell in np.flatnonzero(hidden):
        low, high = bounds(whole.ravel(), sums, hidden, cell, lowest=lowest)
        assert high - low >= 1 - 1e-6
        if small[cell] and not all_that_can_be:
            assert high - low >= LEAST - 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_no_hidden_count_by_group_can_be_solved_for(seed):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(8, (4, 4)) * (rng.random((4, 4)) < 0.7)
    counts[0] = [2, 1, 0, 0]  # a group to hide as a whole; the last bin is empty in all that are hidden with it
    counts[1:, 3] = [0, 9, 9]
    every = np.vstack([counts.sum(axis=0), counts])
    groups = hidden_groups(every.sum(axis=1), LEAST)
    hidden = hidden_in_groups(every, groups, LEAST, [True] * 4)
    shown = np.where(hidden, np.nan, every)
    assert not np.any((shown > 0) & (shown < LEAST))
    attacker = Attacker()
    published(attacker, "t", shown[1:], np.where(groups[1:], np.nan, counts.sum(axis=1)), shown[0], counts.sum())
    for i, j in zip(*np.nonzero(hidden), strict=True):
        low, high = attacker.range_of(("t", i - 1, j) if i else ("t", "column", j))
        assert high - low >= 1 - 1e-6


def test_little_is_hidden_where_little_is_small():
    counts = with_margins(np.array([[57, 43, 29, 7, 2], [64, 39, 31, 6, 9]]))
    hidden = hidden_cells(counts.ravel(), table_sums(2, 5), least=LEAST).reshape(counts.shape)
    assert np.count_nonzero(hidden) == 4
    assert not hidden[:, -1].any()
    assert not hidden_cells(np.array([9.0, 8.0, 17.0]), list_sums(2), least=LEAST).any()
    assert hidden_groups(np.array([40, 3, 20, 17]), LEAST).tolist() == [False, True, False, True]
    assert hidden_groups(np.array([3]), LEAST).all()


def sparse_patients(by):
    """Return patients of whom one group has three values in two columns, and the others have all."""
    table = patients(n=90, seed=3).assign(lab=1.0, mark="x")
    group = np.flatnonzero(split("even", 90) == 0 if by == "site" else table["sex"] == "f")
    table.loc[group[3:], ["lab", "mark"]] = np.nan
    table.loc[group[:3], "lab"], table.loc[group[:3], "mark"] = [0.5, 2.0, 3.0], ["x", "x", "y"]
    return table


@pytest.mark.parametrize(
    ("by", "kind"), [("code", "even"), ("sex", "tiny"), ("site", "tiny"), ("sex", "sparse"), ("site", "sparse")]
)
def test_no_suppressed_count_of_a_first_look_can_be_solved_for(by, kind):
    table = sparse_patients(by) if kind == "sparse" else patients(n=90, seed=3)
    site = split("even" if kind == "sparse" else kind, 90)
    table = table[table[by].notna()] if by in table else table  # else rows without a group are in some tables only
    site = site[table.index].astype(str)
    look = fs.statistics.overview(fs.federate(table.reset_index(drop=True), sites=site), by=by)
    found = look.description
    attacker = Attacker()
    secret = []
    for j, column in enumerate(found.columns):
        if column == found.by:
            continue
        numbers = column not in found.categories
        cells = np.stack([found.count[:, j], found.missing[:, j]], axis=1)
        named = cells if numbers else found.categories[column].counts
        # The groups' numbers of rows are the same cells in all tables.
        name = (column,)
        published(attacker, name, named[1:], found.rows[1:], named[0], found.rows[0])
        for i in range(len(found.groups)):
            attacker.adds_up(("group", i), [(name, i)])
        secret += [(name, i, k) for i, k in zip(*np.nonzero(np.isnan(named[1:])), strict=True)]
        secret += [(name, "column", k) for k in np.flatnonzero(np.isnan(named[0]))]
        assert not np.any((cells[:, 0] > 0) & (cells[:, 0] < LEAST))
        # The number of values of all groups: by the correlations and the histogram.
        at = list(look.correlation.columns).index(column) if numbers else -1
        if numbers and look.correlation.n[at, at]:
            attacker.cell((name, "column", 0), look.correlation.n[at, at])
        bars = [one for one in look.histograms if one.column == column]
        for one in bars:
            attacker.cell((name, "column", 0), np.sum(np.r_[one.below[0], one.counts[0], one.above[0]]))
        # Missing cells of sites, whose numbers of rows the attacker knows, by the tests of sites.
        gaps = {name: ("missing", column, name) for name in found.sites}
        for test in look.differences.tests:
            if test.of == "missing" and test.column == column:
                n, rest = np.sum(site == test.site), np.sum(site != test.site)
                weights = {gaps[one]: -1 / rest for one in found.sites} | {gaps[test.site]: 1 / n}
                attacker.equations.append(({attacker.cell(key): w for key, w in weights.items()}, test.effect))
        attacker.adds_up((name, "column", named.shape[1] - 1), list(gaps.values()))
        values = table[column].notna().groupby(site).agg(["sum", "size"])
        few = values[(values["sum"] > 0) & (values["sum"] < LEAST) & (values["size"] >= LEAST)]
        secret += [gaps[one] for one in few.index]
        if by == "site":
            for i, one in enumerate(found.groups):
                attacker.adds_up(gaps[one], [(name, i, named.shape[1] - 1)])
    secret += [("group", i) for i in np.flatnonzero(np.isnan(found.rows[1:]))]
    assert secret
    for name in secret:
        low, high = attacker.range_of(name)
        assert high - low >= 1 - 1e-6, f"{name} is known"


def test_no_suppressed_count_of_a_crosstab_or_histogram_can_be_solved_for():
    fed = federated(patients())
    cross = fs.statistics.crosstab(fed, "sex", "code")
    bars = fs.statistics.histogram(fed, "crp", by="sex", bins=12)
    attacker = Attacker()
    published(attacker, "cross", cross.counts, cross.row_totals, cross.column_totals, cross.total)
    cells = np.column_stack([bars.below, bars.counts, bars.above])
    sizes = patients().groupby("sex")["crp"].count().to_numpy()  # as a description has them
    published(attacker, "bars", cells[1:], sizes, cells[0], sizes.sum())
    secret = [("cross", i, j) for i, j in zip(*np.nonzero(np.isnan(cross.counts)), strict=True)]
    secret += [("bars", i, j) for i, j in zip(*np.nonzero(np.isnan(cells[1:])), strict=True)]
    assert len(secret) > 6
    for name in secret:
        low, high = attacker.range_of(name)
        assert high - low >= 1 - 1e-6, f"{name} is known"


def test_names_of_few_rows_are_not_listed():
    found = fs.describe(federated(patients()))
    assert "E" not in found.categories["code"].names
    assert "E" in fs.describe(federated(patients()), least_set=1).categories["code"].names
    assert "E" in CATEGORIES["code"]


def test_totals_of_columns_are_shown_where_other_cells_will_do():
    counts = np.array([[17, 12, 10], [5, 6, 0], [1, 0, 3]])
    assert hidden_in_table(counts, least=5)[-1].any()
    kept = hidden_in_table(counts, least=5, totals=True)
    assert not kept[-1].any()
    assert kept[2, [0, 2]].all()
