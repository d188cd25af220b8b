"""Sites: what they take, and what a step can use."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_matrix, csc_array, csr_array

import fedspan as fs
from fedspan.errors import (
    InputError,
)


def test_a_site_takes_arrays_lists_memory_maps_and_frames(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "x.npy", X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for given in (X, X.tolist(), np.load(tmp_path / "x.npy", mmap_mode="r"), frame):
        np.testing.assert_array_equal(fs.Site("s", given).X, X)
    site = fs.Site("s", frame)
    assert site.feature_names == ("a", "b")
    site.frame.iloc[0, 0] = 99.0  # writes to a copy
    pd.testing.assert_frame_equal(site.frame, frame)
    assert frame.iloc[0, 0] == 0.0
    assert fs.Site("s", X).feature_names is None


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    site = fs.Site("s", np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(site.X, np.memmap)


def test_batches_cover_all_rows_in_order():
    X, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    site = fs.Site("s", X, y=y, task=y + 1)
    for rows in (1, 2, 5, 9):
        parts = list(site.batches(rows))
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), X)
        np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
        np.testing.assert_array_equal(np.concatenate([part.task for part in parts]), y + 1)
    with pytest.raises(InputError, match="rows=0"):
        next(site.batches(0))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("", np.eye(2)), "non-empty string"),
        ((3, np.eye(2)), "non-empty string"),
        (("\ud800", np.eye(2)), "plain text"),
        (("s", 5.0), "must have rows"),
        (("s", np.eye(2), [1]), r"y has shape \(1,\), but X has 2 rows"),
        (("s", np.eye(2), None, [1, 2, 3]), "task has shape"),
    ],
)
def test_bad_sites_are_refused(arguments, reason):
    with pytest.raises(InputError, match=reason):
        fs.Site(*arguments)


def test_sparse_matrices_are_taken_as_rows_and_refused_elsewhere(tmp_path):
    X = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 4.0], [0.0, 0.0, 0.0]])
    for made in (csr_array, csc_array, coo_matrix):
        site = fs.Site("s", made(X))
        assert (len(site), site.sparse, site.feature_names) == (4, True, None)
        np.testing.assert_array_equal(np.concatenate([batch.X for batch in site.batches(3)]), X)
        np.testing.assert_array_equal(site.X, X)
    twice = coo_matrix(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    np.testing.assert_array_equal(fs.Site("s", twice).X, [[0.0, 3.0], [0.0, 0.0]])
    assert fs.Site("s", csr_array(X)).fingerprint() != fs.Site("s", csr_array(2 * X)).fingerprint()
    assert fs.Site("s", csr_array(X)).digest() != fs.Site("s", csr_array(X[:, ::-1])).digest()
    for arguments in (("s", X, csr_array(X)), ("s", csr_array(X).astype(complex))):
        with pytest.raises(InputError, match="sparse"):
            fs.Site(*arguments)
    ledger = fs.privacy.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(InputError, match="sparse"):
        fs.Site("s", csr_array(X), ledger=ledger)


def test_a_large_sparse_matrix_becomes_no_dense_table():
    site = fs.Site("s", csr_array((2**14, 2**12)))
    with pytest.raises(InputError, match="would make a dense table of 536,870,912 bytes"):
        _ = site.X
    assert next(site.batches(5)).X.shape == (5, 2**12)
    wide = site.through(lambda rows: rows + 1.0)
    with pytest.raises(InputError, match="would make a dense table"):
        _ = wide.X
    assert site.through(lambda rows: rows[:, :3] + 1.0).X.sum() == 3 * 2**14


def test_state_and_rng_exist_only_inside_a_step():
    site = fs.Site("s", np.eye(2))
    with pytest.raises(InputError, match="only inside a step"):
        _ = site.state
    with pytest.raises(InputError, match="only inside a step"):
        _ = site.rng


def test_what_a_site_computes_once_is_kept_across_calls():
    made = []

    @fs.step
    def use_gram(site):
        return {"gram": site.cached("gram", lambda: made.append(site.name) or site.X.T @ site.X)}

    fed = fs.LocalFederation([fs.Site("a", np.eye(2)), fs.Site("b", np.ones((2, 2)))])
    first, second = fed.ask(use_gram), fed.ask(use_gram)
    assert made == ["a", "b"]
    np.testing.assert_array_equal(first["b"]["gram"], second["b"]["gram"])


@pytest.mark.parametrize(("n", "read"), [(2047, 2047), (2048, 1024), (3072, 1024), (3071, 1536)])
def test_a_fingerprint_is_of_every_so_many_rows(n, read):
    def fingerprint(row=None, **columns):
        X = np.zeros((n, 1))
        X[row] += row is not None
        return fs.Site("s", X, **columns).fingerprint()

    known, every = fingerprint(), round(n / read)
    assert [fingerprint(row) == known for row in (0, every, every - 1)] == [False, False, every > 1]
    columns = {"y": np.zeros(n), "task": np.zeros(n, dtype=int)}
    assert len({known, *(fingerprint(**{name: columns[name]}) for name in columns), fingerprint(**columns)}) == 4
