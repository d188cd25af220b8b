"""Learned landmarks: splits, noise, and what the coordinator can rebuild."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fed_tsne.learned_paper import PAPER_NOISE, learned

from .blobs import blobs


def test_split_makes_no_difference_without_noise_and_does_with_it():
    rows = blobs()
    plain, split = learned(rows, rows.sites("IID"), rounds=5), learned(rows, rows.sites("one class"), rounds=5)
    assert pytest.approx(plain.B, abs=1e-5) == split.B
    assert plain.epsilon == np.inf
    noisy, sorted_noisy = (
        learned(rows, sites, PAPER_NOISE, rounds=5) for sites in (rows.sites("IID"), rows.sites("one class"))
    )
    assert np.abs(noisy.B - plain.B).max() > 1e-3
    assert sorted_noisy.epsilon < noisy.epsilon < np.inf  # the fewer rows a site has, the more one of them shows


def test_leak_is_whole_with_more_landmarks_than_columns_and_partial_with_fewer():
    rows = blobs()
    whole = learned(rows, rows.sites("IID"), rounds=3).leak()
    assert whole.relative_error < 1e-6  # distances are posted in single precision
    assert whole.psnr > 120
    part = learned(rows, rows.sites("IID"), rounds=3, n_landmarks=3).leak()
    assert 0.01 < part.relative_error < 1
