"""Published tables do not determine a suppressed cell: an attacker tries it by linear programming."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

import fedspan as fs
from fedspan.statistics.describe.parts.suppression import bounds, hidden_cells, hidden_groups, list_sums, table_sums

from .hospital_table import CATEGORIES, federated, patients

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
    # Where an empty cell is visible none is hidden, and the attacker knows it.
    lowest = int(np.any(~hidden & ~sums.public & (whole.ravel() == 0)))
    all_that_can_be = bool(hidden[~sums.public].all())
    for cell in np.flatnonzero(hidden):
        low, high = bounds(whole.ravel(), sums, hidden, cell, lowest=lowest)
        assert high - low >= 1 - 1e-6
        if small[cell] and not all_that_can_be:
            assert high - low >= LEAST - 1e-6


def test_little_is_hidden_where_little_is_small():
    counts = with_margins(np.array([[57, 43, 29, 7, 2], [64, 39, 31, 6, 9]]))
    hidden = hidden_cells(counts.ravel(), table_sums(2, 5), least=LEAST).reshape(counts.shape)
    assert np.count_nonzero(hidden) == 4
    assert not hidden[:, -1].any()
    assert not hidden_cells(np.array([9.0, 8.0, 17.0]), list_sums(2), least=LEAST).any()
    assert hidden_groups(np.array([40, 3, 20, 17]), LEAST).tolist() == [False, True, False, True]
    assert hidden_groups(np.array([3]), LEAST).all()


@pytest.mark.parametrize("by", ["sex", "code", "site"])
@pytest.mark.parametrize("kind", ["even", "tiny"])
def test_no_suppressed_count_of_a_description_can_be_solved_for(by, kind):
    table = patients(n=90, seed=3)
    found = fs.describe(federated(table, kind), by=by)
    attacker = Attacker()
    secret = []
    for j, column in enumerate(found.columns):
        if column == found.by:
            continue
        if column in found.categories:
            cells = found.categories[column].counts
        else:
            cells = np.stack([found.count[:, j], found.missing[:, j]], axis=1)
        # The groups' numbers of rows are the same cells in all tables.
        name = (column,)
        published(attacker, name, cells[1:], found.rows[1:], cells[0], found.rows[0])
        for i in range(len(found.groups)):
            attacker.adds_up(("group", i), [(name, i)])
        secret += [(name, i, k) for i, k in zip(*np.nonzero(np.isnan(cells[1:])), strict=True)]
        secret += [(name, "column", k) for k in np.flatnonzero(np.isnan(cells[0]))]
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
