"""plot_scores: pages and axes of detectors."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(80, 4))
    return X, X + np.repeat([[0.0], [4.0]], 40, axis=0), np.repeat([0, 1], 40)


def test_axes_show_the_threshold_and_each_label(rows):
    X, new, labels = rows
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCADetector(2)).fit(X)
    drawn = fs.plot_scores(pipeline, new, labels, ax=Figure().subplots())
    _, names = drawn.get_legend_handles_labels()
    assert names == ["training rows", "new rows, 0", "new rows, 1", f"threshold {-pipeline[-1].offset_:.3g}"]
    assert fs.plot_scores(pipeline[-1], ax=Figure().subplots()).get_xlabel() == "anomaly score"


def test_a_page_shows_the_roc_curve_of_two_labels(rows, tmp_path):
    X, new, labels = rows
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCADetector(2)).fit(X)
    text = fs.plot_scores(pipeline, new, labels, path=tmp_path / "a.html").read_text(encoding="utf-8")
    for title in ("ROC at the learned threshold", "Scores of the training rows", "Scores of new rows, 1"):
        assert title in text
    words = fs.plot_scores(pipeline, new, labels.astype(str), path=tmp_path / "b.html").read_text(encoding="utf-8")
    assert "ROC" not in words
    alone = fs.plot_scores(pipeline, new[:1], path=tmp_path / "c.html").read_text(encoding="utf-8")
    assert "Scores of the training rows" in alone


def test_what_can_not_be_drawn_is_refused(rows):
    X, new, _ = rows
    model = fs.FedPCADetector(2).fit(X)
    with pytest.raises(InputError, match="not a fitted detector"):
        fs.plot_scores(fs.FedPCA(2).fit(X), ax=Figure().subplots())
    with pytest.raises(InputError, match="those of new rows"):
        fs.plot_scores(model, labels=[1], ax=Figure().subplots())
    with pytest.raises(InputError, match=r"labels has the shape \(1,\)"):
        fs.plot_scores(model, new, [1], ax=Figure().subplots())
