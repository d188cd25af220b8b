"""The pull of rows at landmarks: its gradient, local steps, batches, and torch devices."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.landmarks.feddl import local_descent, local_pull
from fedspan.landmarks.parts import kernel_pull
from tests.landmarks.landmark_examples import blobs, objective, run
from tests.packages import needs


def test_gradient_agrees_with_finite_differences():
    X, labels = blobs()
    Y, gamma, rng = X[:7] + 0.5, 0.2, np.random.default_rng(1)
    sites = [fs.Site(str(k), X[labels == k]) for k in range(3)]
    total = fs.LocalFederation(sites).sum(local_pull, Y=Y, gamma=gamma)
    gradient = kernel_pull.mean_gradient(total["pull"], total["n"], kernel_pull.own_pull(Y, gamma)[0], gamma)
    for _ in range(5):
        direction, h = rng.normal(size=Y.shape), 1e-5
        slope = (objective(X, Y + h * direction, gamma) - objective(X, Y - h * direction, gamma)) / (2 * h)
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-6, abs=1e-10)


def test_rows_that_do_not_fit_are_taken_in_batches(monkeypatch):
    X, labels = blobs()
    expected = run(X, labels, rounds=4)
    monkeypatch.setattr(kernel_pull, "_KEPT_BYTES", 0)
    monkeypatch.setattr(kernel_pull, "_BATCH_ROWS", 13)
    np.testing.assert_allclose(run(X, labels, rounds=4).points, expected.points, atol=1e-11)


def test_local_steps_by_hand():
    site = fs.Site("a", np.array([[1.0], [3.0]]))
    Y, gamma, size = np.array([[0.0], [2.0]]), 0.5, 0.1
    expected = Y
    for _ in range(3):
        direction = np.zeros_like(Y)
        for j in range(2):
            unit = np.eye(2)[:, [j]]
            ahead, behind = (objective(site.X, expected + sign * 1e-5 * unit, gamma) for sign in (1, -1))
            direction[j] = (ahead - behind) / 2e-5
        expected = expected - size * direction
    settings = {"Y": Y, "gamma": gamma, "size": size, "steps": 3}
    fed = fs.LocalFederation([site])
    sent = fed.sum(local_descent, **settings, upload="landmarks")
    np.testing.assert_allclose(sent["landmarks"] / 2, expected, rtol=1e-8)
    sent = fed.sum(local_descent, **settings, upload="gradient")
    np.testing.assert_allclose(Y - 3 * size * sent["gradient"] / 2, expected, rtol=1e-8)


on_torch = needs("torch")


def three_groups(n=120):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)) + 8 * np.eye(4)[np.arange(n) % 3], np.arange(n) % 5


@on_torch
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("settings", [{}, {"local_steps": 2}, {"upload": "landmarks"}], ids=["one", "two", "landmarks"])
def test_landmarks_are_the_same_on_a_device(precision, settings):
    X, sites = three_groups()
    here = fs.FedLandmarks(10, rounds=5, precision=precision, random_state=0, **settings).fit(X, sites=sites)
    there = fs.FedLandmarks(10, rounds=5, precision=precision, random_state=0, device="cpu", **settings).fit(
        X, sites=sites
    )
    near = 1e-4 if precision == "single" else 1e-9
    np.testing.assert_allclose(there.landmarks_, here.landmarks_, atol=near)
    assert there.mmd2_ == pytest.approx(here.mmd2_, rel=1e-3)


@on_torch
def test_rows_that_are_not_kept_go_to_the_device_in_batches(monkeypatch):
    X, sites = three_groups()
    expected = fs.FedLandmarks(10, rounds=3, random_state=0).fit(X, sites=sites)
    monkeypatch.setattr(kernel_pull, "_KEPT_BYTES", 0)
    monkeypatch.setattr(kernel_pull, "_BATCH_ROWS", 7)
    found = fs.FedLandmarks(10, rounds=3, random_state=0, device="cpu").fit(X, sites=sites)
    np.testing.assert_allclose(found.landmarks_, expected.landmarks_, atol=1e-9)


@on_torch
def test_a_device_changes_nothing_about_the_privacy_spent():
    X, sites = three_groups()
    privacy = fs.privacy.GaussianGradient(8.0, 1e-5)
    runs = [
        fs.FedLandmarks(10, rounds=3, random_state=0, device=device, privacy=privacy).fit(X, sites=sites)
        for device in (None, "cpu")
    ]
    # The requests name the device, so that their noises differ.
    assert runs[0].privacy_.epsilon == runs[1].privacy_.epsilon
    assert np.isfinite(runs[1].landmarks_).all()


@on_torch
def test_sites_without_the_device_use_numpy(monkeypatch):
    X, sites = three_groups()
    expected = fs.FedLandmarks(10, rounds=3, random_state=0).fit(X, sites=sites)
    monkeypatch.setattr(kernel_pull, "device_here", lambda device: None)
    found = fs.FedLandmarks(10, rounds=3, random_state=0, device="cpu").fit(X, sites=sites)
    np.testing.assert_allclose(found.landmarks_, expected.landmarks_, atol=1e-12)  # other calls, the same numbers
