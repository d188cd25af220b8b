"""Kernels of rows that are rounded for tensor cores, here torch on the processor: those of the rounded rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.landmarks.parts import kernel_pull as site_part
from fedspan.linalg.array_backend import to_device, to_numpy
from fedspan.linalg.kernels.gaussian_kernel import kernel_matrix, kernel_pull, squared_norms
from fedspan.linalg.kernels.tensor_cores import (
    on_tensor_cores,
    rounded,
    rounded_in_place,
    rounded_kernel,
    tensor_products,
)
from tests.packages import needs

pytestmark = needs("torch")


@given(st.floats(-1024, 1024, width=32), st.integers(-60, 60))
def test_numbers_are_rounded_to_the_nearest_of_eleven_bits(value, power):
    value *= 2.0**power
    (found,) = to_numpy(rounded(to_device(np.float32([value]), "cpu"))).astype(float)
    exponent = np.frexp(np.float32(value))[1]
    assert abs(found - value) <= 2.0 ** (int(exponent) - 12) or abs(value) < 1e-36
    assert found == np.ldexp(np.round(np.ldexp(found, 11 - int(exponent))), int(exponent) - 11)


def test_what_is_not_finite_stays_so():
    found = to_numpy(rounded(to_device(np.float32([np.inf, -np.inf, np.nan]), "cpu")))
    np.testing.assert_array_equal(found, np.float32([np.inf, -np.inf, np.nan]))


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 3000), st.integers(1, 7), st.floats(1e-3, 10.0))
def test_the_kernel_is_that_of_the_rounded_rows(seed, n, n_y, gamma):
    rng = np.random.default_rng(seed)
    X = rounded_in_place(to_device(rng.normal(size=(n, 5)).astype(np.float32), "cpu"))
    Y = rng.normal(size=(n_y, 5)).astype(np.float32)
    norms = squared_norms(X)
    expected = kernel_matrix(to_numpy(X).astype(float), Y.astype(float), gamma)
    found = rounded_kernel(X, to_device(Y, "cpu"), gamma, norms)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=2**-11, atol=1e-4 * gamma)
    pull, total = kernel_pull(X, to_device(Y, "cpu"), gamma, norms, rounded=True)
    expected, mass = kernel_pull(to_numpy(X).astype(float), Y.astype(float), gamma)
    assert total == pytest.approx(mass, rel=1e-3, abs=1e-3)
    np.testing.assert_allclose(pull, expected, atol=2**-10 * n)


def test_torch_computes_as_before_afterwards():
    import torch

    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    with tensor_products():
        assert products.fp32_precision == "tf32"
    assert products.fp32_precision == before


def test_torch_computes_as_before_once_all_sites_have_left():
    import torch

    products = torch.backends.cuda.matmul
    before, first, second = products.fp32_precision, tensor_products(), tensor_products()
    for context in (first, second):  # sites side by side: the first one leaves first
        context.__enter__()
    first.__exit__(None, None, None)
    assert products.fp32_precision == "tf32"
    second.__exit__(None, None, None)
    assert products.fp32_precision == before


def test_landmarks_are_near_those_of_single_precision(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 8)).astype(np.float32)
    settings = {"rounds": 20, "precision": "single", "random_state": 0, "device": "cpu"}
    expected = fs.FedLandmarks(20, **settings).fit(X, sites=np.arange(3000) % 3)
    assert not on_tensor_cores(to_device(X, "cpu"))
    monkeypatch.setattr(site_part, "on_tensor_cores", lambda X: str(X.dtype) == "torch.float32")
    found = fs.FedLandmarks(20, **settings).fit(X, sites=np.arange(3000) % 3)
    np.testing.assert_allclose(found.landmarks_, expected.landmarks_, atol=2e-3)
    assert not np.array_equal(found.landmarks_, expected.landmarks_)
    assert found.mmd2_ == pytest.approx(expected.mmd2_, rel=1e-3)
    split = fs.FedLandmarks(20, **settings).fit(X, sites=np.arange(3000) % 7)
    np.testing.assert_allclose(split.landmarks_, found.landmarks_, atol=1e-3)
