"""Laws of the splitters, and cases computed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.datasets import split_blocks, split_by_label, split_dirichlet, split_heavy_tailed, split_iid
from fedspan.datasets.splitters import site_names
from fedspan.errors import InputError

seeds = st.integers(0, 2**32)
classes = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array)


def sizes(labels: np.ndarray) -> list[int]:
    """Rows of each site, in the order of the names."""
    return np.unique(labels, return_counts=True)[1].tolist()


def check_labels(labels: np.ndarray, n_rows: int, n_sites: int) -> None:
    """Every row has exactly one label, and every site has a row."""
    assert labels.shape == (n_rows,)
    assert sorted(set(labels.tolist())) == site_names(n_sites).tolist()


def sites_for(n_rows: int) -> st.SearchStrategy[int]:
    return st.integers(1, n_rows)


# ---- names


@pytest.mark.parametrize(
    ("n", "last"), [(1, "site-00"), (100, "site-99"), (101, "site-100"), (1000, "site-999"), (1001, "site-1000")]
)
def test_names_sort_as_numbers(n: int, last: str) -> None:
    names = site_names(n).tolist()
    assert len(set(names)) == n
    assert sorted(names) == names
    assert names[-1] == last


# ---- iid


@given(st.data(), st.integers(1, 80), seeds)
def test_iid_laws(data: st.DataObject, n_rows: int, seed: int) -> None:
    n_sites = data.draw(sites_for(n_rows))
    labels = split_iid(n_rows, n_sites, seed=seed)
    check_labels(labels, n_rows, n_sites)
    assert max(sizes(labels)) - min(sizes(labels)) <= 1
    assert np.array_equal(labels, split_iid(n_rows, n_sites, seed=seed))


def test_iid_depends_on_the_seed_and_mixes() -> None:
    labels = split_iid(1000, 2, seed=1)
    assert not np.array_equal(labels, split_iid(1000, 2, seed=2))
    # The first half of the rows is spread over both sites (250 +- 8 each; the bound is five deviations).
    assert abs(sizes(labels[:500])[0] - 250) < 40


# ---- by label


def test_one_class_a_site() -> None:
    assert split_by_label(["cat", "ant", "cat", "bee"]).tolist() == ["site-02", "site-00", "site-02", "site-01"]


def test_classes_are_dealt_to_fewer_sites() -> None:
    assert split_by_label([0, 1, 2, 3, 4, 4], 2).tolist() == ["site-0" + c for c in "010100"]


def test_further_sites_go_to_the_class_with_most_rows_a_site() -> None:
    # 6, 3 and 1 rows. Further sites: 6/1 -> a; 6/2 = 3/1 -> a, the first on a tie; 6/3 < 3/1 -> b.
    y = np.array(list("aaaaaabbbc"))
    assert sizes(split_by_label(y, 4)) == [3, 3, 3, 1]
    assert sizes(split_by_label(y, 5)) == [2, 2, 2, 3, 1]
    assert sizes(split_by_label(y, 6)) == [2, 2, 2, 2, 1, 1]
    assert split_by_label(y, 6).tolist() == ["site-0" + c for c in "0120123435"]


@given(st.data(), classes)
def test_by_label_laws(data: st.DataObject, y: np.ndarray) -> None:
    before = y.copy()
    n_sites = data.draw(sites_for(len(y)))
    labels = split_by_label(y, n_sites)
    check_labels(labels, len(y), n_sites)
    assert np.array_equal(y, before)
    assert np.array_equal(labels, split_by_label(y, n_sites))
    known = np.unique(y)
    sites_of_class = {c: sorted(set(labels[y == c].tolist())) for c in known}
    if n_sites <= len(known):
        assert all(len(sites) == 1 for sites in sites_of_class.values())
    else:
        assert all(len(set(y[labels == site].tolist())) == 1 for site in set(labels.tolist()))
        for c in known:
            assert max(sizes(labels[y == c])) - min(sizes(labels[y == c])) <= 1
        # The rule is the highest-averages rule: no site could be moved to another class with profit.
        rows, sites = Counter(y.tolist()), {c: len(s) for c, s in sites_of_class.items()}
        lowest_given = [Fraction(rows[c], sites[c] - 1) for c in known if sites[c] > 1]
        highest_left = [Fraction(rows[c], sites[c]) for c in known]
        assert min(lowest_given) >= max(highest_left)


@given(classes)
def test_by_label_does_not_depend_on_how_classes_are_written(y: np.ndarray) -> None:
    as_text = np.array(list("abcdef"))[y]
    assert np.array_equal(split_by_label(y), split_by_label(as_text))
    assert np.array_equal(split_by_label(y), split_by_label(pd.Series(as_text)))


# ---- Dirichlet


@settings(deadline=None)
@given(st.data(), classes, st.floats(1e-300, 1e300), seeds)
def test_dirichlet_laws(data: st.DataObject, y: np.ndarray, alpha: float, seed: int) -> None:
    before = y.copy()
    n_sites = data.draw(sites_for(len(y)))
    min_rows = data.draw(st.integers(1, len(y) // n_sites))
    labels = split_dirichlet(y, n_sites, alpha, min_rows=min_rows, seed=seed)
    check_labels(labels, len(y), n_sites)
    assert min(sizes(labels)) >= min_rows
    assert np.array_equal(y, before)
    assert np.array_equal(labels, split_dirichlet(y, n_sites, alpha, min_rows=min_rows, seed=seed))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_dirichlet_shares_have_the_right_mean_and_variance(alpha: float) -> None:
    n_classes, size, n_sites = 1500, 60, 4
    y = np.repeat(np.arange(n_classes), size)
    labels = split_dirichlet(y, n_sites, alpha, seed=7)
    shares = np.stack([(labels == name).reshape(n_classes, size).mean(axis=1) for name in site_names(n_sites)])
    expected = (1 / n_sites) * (1 - 1 / n_sites) / (n_sites * alpha + 1)
    np.testing.assert_allclose(shares.mean(axis=1), 1 / n_sites, atol=5 * np.sqrt(expected / n_classes))
    np.testing.assert_allclose(shares.var(axis=1), expected, rtol=0.15)


def test_dirichlet_extremes() -> None:
    y = np.repeat(np.arange(3), 300)
    even = split_dirichlet(y, 3, 1e6, seed=0)
    for c in range(3):
        assert max(sizes(even[y == c])) - min(sizes(even[y == c])) <= 3
    concentrated = split_dirichlet(y, 3, 1e-6, seed=0)
    # A class is in one piece, but for rows given to sites that had none.
    assert all(max(sizes(concentrated[y == c])) >= 298 for c in range(3))


def test_dirichlet_rows_within_a_class_are_shuffled() -> None:
    labels = split_dirichlet(np.zeros(1000, dtype=int), 2, 1e6, seed=0)
    assert abs(sizes(labels[:500])[0] - 250) < 40


def test_dirichlet_tops_up_with_as_few_moves_as_possible() -> None:
    y = np.repeat(np.arange(4), 50)
    free = split_dirichlet(y, 5, 0.3, seed=3)
    counts = np.array(sizes(free))
    assert 1 < counts.min() < 20  # this draw needs no help for one row, but does for twenty
    helped = split_dirichlet(y, 5, 0.3, min_rows=20, seed=3)
    moved = free != helped
    assert moved.sum() == np.maximum(20 - counts, 0).sum()
    needy = site_names(5)[counts < 20]
    assert set(helped[moved].tolist()) == set(needy.tolist())
    assert not np.isin(free[moved], needy).any()
    # Each time the site that has most gives, so none that gave ends up well below the largest.
    after = dict(zip(site_names(5).tolist(), sizes(helped), strict=True))
    assert min(after[giver] for giver in free[moved].tolist()) >= max(after.values()) - 1


# ---- blocks


def test_blocks_by_hand() -> None:
    assert split_blocks([3.0, 1.0, 2.0, 1.0, 9.0, 1.0, 0.0], 3).tolist() == ["site-0" + c for c in "2010210"]


@given(st.data(), st.lists(st.integers(-3, 3), min_size=1, max_size=60).map(np.array))
def test_blocks_laws(data: st.DataObject, values: np.ndarray) -> None:
    before = values.copy()
    n_sites = data.draw(sites_for(len(values)))
    labels = split_blocks(values, n_sites)
    check_labels(labels, len(values), n_sites)
    assert np.array_equal(values, before)
    assert sizes(labels) == [len(block) for block in np.array_split(values, n_sites)]
    # Sorted by value, then by position, the labels never fall: sorted blocks, and stable.
    in_order = labels[sorted(range(len(values)), key=lambda i: (values[i], i))].tolist()
    assert in_order == sorted(in_order)


def test_blocks_of_text_and_dates() -> None:
    assert split_blocks(["b", "a"], 2).tolist() == ["site-01", "site-00"]
    days = np.array(["2020-01-02", "2020-01-01"], dtype="datetime64[D]")
    assert split_blocks(days, 2).tolist() == ["site-01", "site-00"]


# ---- heavy tails


def test_zipf_sizes_by_hand() -> None:
    # One row each, then 57 by weights 1, 1/2, 1/3: 31.09, 15.55, 10.36, and the row left over goes to 15.55.
    assert sizes(split_heavy_tailed(60, 3, seed=0)) == [32, 17, 11]
    assert sizes(split_heavy_tailed(60, 3, exponent=0, seed=0)) == [20, 20, 20]
    assert sizes(split_heavy_tailed(60, 3, exponent=2.0, min_rows=10, seed=0)) == [32, 16, 12]
    assert sizes(split_heavy_tailed(60, 3, exponent=400.0, seed=0)) == [58, 1, 1]


@given(st.data(), st.integers(1, 300), st.floats(0, 50), seeds)
def test_heavy_tailed_laws(data: st.DataObject, n_rows: int, exponent: float, seed: int) -> None:
    n_sites = data.draw(sites_for(n_rows))
    min_rows = data.draw(st.integers(1, n_rows // n_sites))
    labels = split_heavy_tailed(n_rows, n_sites, exponent=exponent, min_rows=min_rows, seed=seed)
    check_labels(labels, n_rows, n_sites)
    counts = sizes(labels)
    assert min(counts) >= min_rows
    assert counts == sorted(counts, reverse=True)
    weights = np.arange(1.0, n_sites + 1) ** -exponent
    exact = min_rows + (n_rows - n_sites * min_rows) * weights / weights.sum()
    assert np.abs(counts - exact).max() < 1 + 1e-9
    again = split_heavy_tailed(n_rows, n_sites, exponent=exponent, min_rows=min_rows, seed=seed)
    assert np.array_equal(labels, again)


def test_heavy_tailed_seed_moves_rows_not_sizes() -> None:
    one, two = split_heavy_tailed(500, 5, seed=1), split_heavy_tailed(500, 5, seed=2)
    assert sizes(one) == sizes(two)
    assert not np.array_equal(one, two)


# ---- refusals


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        (lambda: split_iid(3, 4, seed=0), "n_sites=4 must be a whole number between 1 and 3, since every site"),
        (lambda: split_iid(0, 1, seed=0), "n_rows=0 must be a whole number of at least 1"),
        (lambda: split_iid(3, 0, seed=0), "n_sites=0 must"),
        (lambda: split_iid(3, 2.0, seed=0), "n_sites=2.0 must"),
        (lambda: split_iid(3, True, seed=0), "n_sites=True must"),
        (lambda: split_iid(3, 2, seed=-1), "seed=-1 must be a whole number of at least 0"),
        (lambda: split_iid(3, 2, seed=None), "seed=None must"),
        (lambda: split_by_label([1, 2], 3), "n_sites=3 must be a whole number between 1 and 2"),
        (lambda: split_by_label([[1, 2]]), r"y has shape \(1, 2\)"),
        (lambda: split_by_label([]), r"y has shape \(0,\)"),
        (lambda: split_by_label([1.0, np.nan]), "y must not hold missing values"),
        (lambda: split_by_label(np.array(["a", np.nan], dtype=object)), "y must"),
        (lambda: split_by_label(np.array(["a", None], dtype=object)), "y must hold values of one kind"),
        (lambda: split_by_label(pd.Series(["a", pd.NA], dtype="object")), "y must"),
        (lambda: split_dirichlet([0, 1, 2], 2, 0.0, seed=0), "alpha=0.0 must be a finite number above 0"),
        (lambda: split_dirichlet([0, 1, 2], 2, np.inf, seed=0), "alpha=inf must be a finite number above 0"),
        (lambda: split_dirichlet([0, 1, 2], 2, 1.5e308, seed=0), r"alpha \* n_sites=inf must be a finite"),
        (lambda: split_dirichlet([0, 1, 2], 2, "1", seed=0), "alpha='1' must"),
        (
            lambda: split_dirichlet([0, 1, 2, 3, 4], 2, 1.0, min_rows=3, seed=0),
            "min_rows=3 must be a whole number between 1 and 2, since 2 sites share 5 rows",
        ),
        (lambda: split_dirichlet([0, 1, 2], 2, 1.0, min_rows=0, seed=0), "min_rows=0 must"),
        (lambda: split_blocks([1.0, np.nan], 1), "values must not hold missing values"),
        (lambda: split_blocks(np.array(["2020-01-01", "NaT"], "datetime64[D]"), 1), "values must not hold missing"),
        (lambda: split_blocks([1.0], 2), "n_sites=2 must"),
        (lambda: split_heavy_tailed(5, 2, exponent=-0.1, seed=0), "exponent=-0.1 must be a finite number of at"),
        (lambda: split_heavy_tailed(5, 2, exponent=np.nan, seed=0), "exponent=nan must"),
        (lambda: split_heavy_tailed(5, 2, min_rows=3, seed=0), "min_rows=3 must be a whole number between 1 and 2"),
    ],
)
def test_the_impossible_is_refused_with_a_sentence(split: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        split()
