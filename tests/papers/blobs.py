"""Rows in four clear groups, for tests of Fed-tSNE."""

from __future__ import annotations

import numpy as np

from fedspan.papers.fed_tsne.learned_paper import PaperRows


def blobs(n=120, n_landmarks=12) -> PaperRows:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    middles = 0.5 + 0.3 * np.array([[1, 1, 0, 0, 1], [-1, 1, 0, 1, 0], [1, -1, 1, 0, 0], [-1, -1, 0, 0, -1]])
    return PaperRows("blobs", middles[y] + 0.03 * rng.normal(size=(n, 5)), y, n_landmarks, (0.0, 1.0))
