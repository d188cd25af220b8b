"""Folds of rows, which sites draw for themselves, and folds of whole sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.model_selection import RowFolds, SiteFolds
from fedspan.model_selection.folds import (
    DRAWS,
    chosen_folds,
    fold,
    fold_of_rows,
    fold_size,
    n_blocks,
    rows_of_a_block,
)
from fedspan.owner.allowed_steps import allows_transform
from fedspan.sums.dealt_rows import block_of_rows


@fs.step
def shown(site):
    return {"X": site.X, "y": site.y, "n": len(site), "blocks": np.concatenate([b.X for b in site.batches(3)])}


def table(n=60, classes=3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)), rng.integers(classes, size=n)


@pytest.mark.parametrize("frame", [False, True])
def test_every_row_is_held_out_once_with_its_target(frame):
    X, y = table()
    fed = fs.federate(pd.DataFrame(X) if frame else X, y, sites=np.arange(60) % 4)
    held = {name: [] for name in fed.sites}
    for split in RowFolds(5).splits(fed):
        for name, reply in split.held.ask(shown).items():
            trained = split.training.ask(shown)[name]
            assert reply["n"] + trained["n"] == 15
            np.testing.assert_array_equal(reply["X"], reply["blocks"])
            together = np.concatenate([reply["X"], trained["X"]])
            np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X[np.arange(60) % 4 == int(name)], axis=0))
            held[name].append(np.column_stack([reply["X"], reply["y"]]))
    for name, parts in held.items():
        own = np.arange(60) % 4 == int(name)
        found, wanted = np.concatenate(parts), np.column_stack([X[own], y[own]])
        assert {tuple(row) for row in found} == {tuple(row) for row in wanted}


def test_folds_are_the_same_in_every_run_and_differ_by_draw():
    X, y = table()
    site = fs.Site("a", X, y)
    np.testing.assert_array_equal(fold_of_rows(site, 5, 0, False), fold_of_rows(fs.Site("a", X, y), 5, 0, False))
    assert (fold_of_rows(site, 5, 0, False) != fold_of_rows(site, 5, 1, False)).any()
    for n in (1, 2, 7, 60):
        small = fs.Site("b", X[:n], y[:n])
        for by_class in (False, True):
            counts = np.bincount(fold_of_rows(small, 4, 3, by_class), minlength=4)
            assert counts.tolist() == [fold_size("b", n, 4, number, 3) for number in range(4)]


def test_stratified_folds_have_the_same_share_of_each_class():
    X, y = table()
    folds = fold_of_rows(fs.Site("a", X, y), 5, 0, True)
    counts = np.array([[np.sum((folds == k) & (y == label)) for k in range(5)] for label in range(3)])
    assert np.ptp(counts, axis=1).max() <= 2
    with pytest.raises(InputError, match="has no y"):
        fold_of_rows(fs.Site("a", X), 5, 0, True)


@pytest.mark.parametrize("n", [40, 100, 399, 1000])
def test_sums_over_all_folds_that_exist_are_about_blocks_of_rows(n):
    """With folds of single rows the 2,090 sums over all folds were equations that gave each of n rows."""
    y = np.random.default_rng(0).integers(3, size=n)
    for site in (
        fs.Site("a", np.zeros((n, 1))),
        fs.Site("a", np.zeros((n, 1)), y),
        fs.Site("a", np.zeros((n, 1)), y.astype(str)),
    ):
        every = [
            fold_of_rows(site, folds, draw, by_class)
            for folds in range(2, 21)
            for draw in range(DRAWS)
            for by_class in ([False] if site.y is None else [False, True])
        ]
        found, counts = np.unique(np.array(every), axis=1, return_counts=True)
        assert counts.min() == rows_of_a_block(n) >= min(n // 20, 20)
        assert found.shape[1] == n_blocks(n)
        for each in every[::40]:
            assert np.ptp(np.bincount(each)) <= 2 * rows_of_a_block(n)


@pytest.mark.parametrize(("by", "versions", "given"), [(1, 6, 83), (5, 7, 130), (20, 25, 0)])
def test_folds_of_a_growing_table_give_rows_unless_it_grows_by_many(by, versions, given):
    """What the owner's page states: the sums over the blocks of all versions are equations for the rows."""
    sizes, parts = [100 + by * version for version in range(versions)], []
    for n in sizes:
        of_block = np.zeros((n_blocks(n), sizes[-1]))
        of_block[block_of_rows(fs.Site("a", np.zeros((n, 1)))), np.arange(n)] = 1
        parts.append(of_block)
    _, lengths, axes = np.linalg.svd(np.concatenate(parts), full_matrices=False)
    alone = np.square(axes[lengths > 1e-9 * lengths[0]]).sum(axis=0) > 1 - 1e-9
    assert np.count_nonzero(alone) == given


def test_sites_without_rows_in_a_fold_are_left_out_of_it():
    X, _ = table(8)
    fed = fs.LocalFederation([fs.Site("one", X[:1]), fs.Site("three", X[1:4]), fs.Site("four", X[4:])])
    for split in RowFolds(4).splits(fed):
        held, trained = split.held.ask(shown), split.training.ask(shown)
        assert all(reply["n"] for reply in (*held.values(), *trained.values()))
    with pytest.raises(InputError, match="use fewer folds"):
        list(RowFolds(4).splits(fs.LocalFederation([fs.Site("one", X[:1])])))


def test_whole_sites_are_left_out():
    X, _ = table()
    fed = fs.federate(X, sites=np.arange(60) % 6)
    folds = list(SiteFolds(3).splits(fed))
    assert sorted(name for split in folds for name in split.left_out) == list(fed.sites)
    for split in folds:
        assert split.held.sites == split.left_out
        assert set(split.training.sites) == set(fed.sites) - set(split.left_out)
    for wrong in (fs.federate(X), fed.subset(["0"])):
        with pytest.raises(InputError, match="can't be divided"):
            list(SiteFolds().splits(wrong))


@pytest.mark.parametrize("cv", [1, 21, True, "rows", 2.5, None])
def test_wrong_folds_are_refused(cv):
    with pytest.raises(InputError):
        chosen_folds(cv)


def test_folds_behind_a_scaler_and_before_it_are_the_same():
    X, _ = table()
    fed = fs.federate(X, sites=np.arange(60) % 2)
    scaler = fs.FedStandardScaler().fit(fed)
    settings = {"folds": 3, "number": 1, "draw": 0, "by_class": False, "held": True}
    before = scaler.transform(fed.apply(fold, **settings)).ask(shown)
    after = scaler.transform(fed).apply(fold, **settings).ask(shown)
    for name in fed.sites:
        np.testing.assert_array_equal(before[name]["X"], after[name]["X"])


def test_noise_covers_no_fold_and_owners_allow_folds_by_name():
    X, _ = table()
    private = fs.FedStandardScaler(privacy=fs.privacy.GaussianMoments(5.0, 1e-5, lower=-4.0, upper=4.0))
    split = next(iter(RowFolds(3).splits(fs.federate(X, sites=np.arange(60) % 2))))
    with pytest.raises(PolicyError, match="leave whole sites out"):
        raise_cause(private, split.training)
    assert not allows_transform(["fedspan"], "model_selection.fold")
    assert allows_transform(["fedspan", "model_selection.fold"], "model_selection.fold")
    assert not allows_transform(["affine"], "model_selection.fold")


def raise_cause(model, fed):
    try:
        model.fit(fed)
    except fs.errors.QuorumError as error:
        raise error.__cause__ from None
