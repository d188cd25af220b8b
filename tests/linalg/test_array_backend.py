"""The two heavy kernels on torch tensors against numpy, and devices that do not exist."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.errors import InputError, MissingPackageError
from fedspan.linalg.array_backend import check_device, device_here, namespace, to_device, to_numpy
from fedspan.linalg.kernels import neighbors
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull, squared_norms
from fedspan.linalg.kernels.landmark_form import landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from tests.packages import needs

pytestmark = needs("torch")


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 2500), st.integers(1, 7), st.sampled_from([np.float32, np.float64]))
def test_pull_of_tensors_is_that_of_arrays(seed, n, n_y, kind):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, 4)).astype(kind), rng.normal(size=(n_y, 4)).astype(kind)
    expected, total = kernel_pull(X, Y, 0.3, squared_norms(X))
    found, same = kernel_pull(to_device(X, "cpu"), to_device(Y, "cpu"), 0.3, to_device(squared_norms(X), "cpu"))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    rounding = 20 * np.finfo(kind).eps * n
    np.testing.assert_allclose(found, expected, atol=rounding)
    assert same == pytest.approx(total, rel=1e-5 if kind is np.float32 else 1e-12)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(3, 400), st.data())
def test_neighbours_by_tensors_are_those_by_arrays(seed, n, data):
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(30, 5))
    rows = landmark_form(Y).of(np.linalg.norm(rng.normal(size=(n, 1, 5)) - Y, axis=2))
    indices, distances = nearest(rows, k)
    found, far = nearest(rows, k, device="cpu")
    assert found.dtype == np.int32
    assert far.dtype == np.float32
    np.testing.assert_allclose(far, distances, atol=1e-3)
    # two that are as near as each other may change places, and no others
    other = found != indices
    np.testing.assert_allclose(far[other], distances[other], atol=1e-3)
    assert all(len(set(row)) == k for row in found)


def test_queries_by_tensors_may_find_themselves():
    Y = np.random.default_rng(1).normal(size=(30, 2))
    rows = landmark_form(Y).of(np.abs(np.arange(10.0)[:, None] - np.zeros(30)))
    assert nearest(rows, 1, rows.rows(slice(4, 6)), device="cpu")[0].shape == (2, 1)


def test_blocks_on_a_card_are_larger_and_bounded():
    assert neighbors.block_rows(40_000, "cuda") > 10 * neighbors.block_rows(40_000)
    assert neighbors.block_rows(40_000, "cpu") == neighbors.block_rows(40_000)
    assert 4 * 10**6 * neighbors.block_rows(10**6, "cuda:1") <= neighbors.CARD_BLOCK_BYTES


def test_read_only_rows_can_be_moved_and_are_not_shared():
    X = np.arange(6.0).reshape(3, 2)
    X.flags.writeable = False
    moved = to_device(X, "cpu")
    moved[0, 0] = 9.0
    assert X[0, 0] == 0.0
    np.testing.assert_array_equal(to_numpy(moved)[1:], X[1:])
    assert to_device(X, None) is X
    assert to_numpy(X) is X
    assert namespace(moved) is not np


@pytest.mark.parametrize("device", ["no such device", "meta", "cuda:77"])
def test_a_device_that_does_not_exist_is_refused(device):
    with pytest.raises(InputError, match=f"device='{device}' is not available: .*; None computes with numpy"):
        check_device(device)
    assert device_here(device) is None


def test_a_device_is_a_name():
    with pytest.raises(InputError, match="device=0 must be None"):
        check_device(0)
    check_device(None)
    check_device("cpu")
    assert device_here("cpu") == "cpu"
    assert device_here(None) is None


def test_without_torch_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r'needs torch, .* pip install "\.\[gpu\]"'):
        check_device("cuda")
    assert device_here("cuda") is None
