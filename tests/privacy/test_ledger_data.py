"""Data that change behind a site's back: noise and rows belong together, whatever the caller does to the arrays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.landmarks.parts.noisy_pull import local_noisy_pull
from fedspan.privacy import GaussianData, Ledger
from fedspan.privacy.noisy_rows import with_noisy_rows
from fedspan.sums.moments import local_sums

Y = np.zeros((4, 3))
NOISY = {"gamma": 0.5, "multiplier": 2.0}


def rows(n=20):
    return np.random.default_rng(0).normal(size=(n, 3))


def ledger_at(folder, **options):
    return Ledger(folder / "a.ledger", epsilon=50.0, delta=1e-5, **options)


def pull(fed):
    return fed.ask(local_noisy_pull, Y=Y, **NOISY)["a"]["pull"]


def noisy_sums(fed, clip=2.0):
    return with_noisy_rows(fed, GaussianData(5.0, 1e-5, clip=clip)).ask(local_sums)["a"]["sum"]


def array_of(X, folder):
    return X, lambda: X.__setitem__(7, 0.0)


def frame_of(X, folder):
    frame = pd.DataFrame(X, columns=list("abc"), copy=False)
    assert np.shares_memory(frame.to_numpy(), X)
    return frame, lambda: X.__setitem__(7, 0.0)


def mapped(X, folder):
    file = np.lib.format.open_memmap(folder / "x.npy", "w+", X.dtype, X.shape)
    file[:] = X
    file.flush()
    return np.load(folder / "x.npy", mmap_mode="r"), lambda: (file.__setitem__(7, 0.0), file.flush())


@pytest.mark.parametrize("made", [array_of, frame_of, mapped])
@pytest.mark.parametrize("ask", [pull, noisy_sums])
def test_a_site_with_a_ledger_does_not_see_what_is_written_later(made, ask, tmp_path):
    X, change = made(rows(), tmp_path)
    ledger = ledger_at(tmp_path)
    fed = fs.LocalFederation([fs.Site("a", X, ledger=ledger)])
    first = ask(fed)
    change()
    noisy_sums(fed, clip=1.9)  # what was kept of the first question is gone
    before = len(ledger.charges)
    assert ask(fed).tobytes() == first.tobytes()
    assert len(ledger.charges) == before


def test_targets_are_copied_as_well(tmp_path):
    y = np.zeros(20)
    site = fs.Site("a", rows(), y, y, ledger=ledger_at(tmp_path))
    y[:] = 1.0
    assert not site.y.any()
    assert not site.task.any()


def test_a_site_without_a_ledger_copies_nothing():
    X = rows()
    assert np.shares_memory(fs.Site("a", X).X, X)


@pytest.mark.parametrize("ask", [pull, noisy_sums])
@pytest.mark.parametrize("transform", [False, True])
def test_a_large_file_that_was_rewritten_is_another_question(ask, transform, tmp_path, monkeypatch):
    monkeypatch.setattr("fedspan.federation.site.site_data._COPIED_BYTES", 0)
    X, change = mapped(rows(), tmp_path)
    ledger = ledger_at(tmp_path)
    site = fs.Site("a", X, ledger=ledger)
    assert np.shares_memory(site.X, X)
    fed = fs.LocalFederation([site])
    fed = fed.apply(halved) if transform else fed
    first = ask(fed)
    assert ask(fed).tobytes() == first.tobytes()
    assert len(ledger.charges) == 1
    change()
    noisy_sums(fed, clip=1.9)
    again = ask(fed)
    assert len(ledger.charges) == 3

    fresh = fs.LocalFederation([fs.Site("a", np.array(X), ledger=ledger)])
    assert ask(fresh.apply(halved) if transform else fresh).tobytes() == again.tobytes()
    assert len(ledger.charges) == 3


@fs.transform
def halved(X):
    return X / 2
