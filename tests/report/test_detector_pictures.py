"""Pictures of detectors: thresholds and training scores."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.report.models.detector_pictures import training_scores
from fedspan.report.models.model_section import models_section

from .report_reading import Fitted, Page


@pytest.fixture
def X():
    columns = [f"column {j}" for j in range(5)]
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 5)) * [9, 5, 3, 2, 1] + 7, columns=columns)


def page_of(*fitted) -> Page:
    return Page(models_section(fitted))


def test_a_detector_has_what_counts_as_an_outlier(X):
    page = page_of(Fitted(offset_=-2.5, quantile=0.95, distance="residual"))
    for words in ("What is an outlier", "residual", "2.5", "0.95", "5 %"):
        assert words in page.words
    assert "distance" not in page_of(Fitted(offset_=-2.5, quantile=0.95, distance=lambda X: 0.0)).words
    assert "What is an outlier" not in page_of(Fitted(offset_=np.zeros(3), quantile=0.95)).words


def test_a_detector_has_the_pictures_of_its_subspace(X):
    page = page_of(fs.FedPCADetector(2).fit(X, sites=np.arange(40) % 4))
    for words in ("Explained variance", "Loadings of the first components", "What is an outlier", "column 0"):
        assert words in page.words


def test_without_labels_the_training_scores_are_drawn_with_the_threshold():
    rows = np.random.default_rng(0).normal(size=(300, 5))
    detector = fs.FedPCADetector(2, left_out=False).fit(rows, sites=np.arange(300) % 3)
    picture = training_scores(detector)
    page = Page(picture.body)
    parts = [float(found) for found in re.findall(r": ([\d.]+) %</title>", picture.body)]
    assert sum(parts) == pytest.approx(100, abs=1)
    # What lies wholly beyond the threshold has another colour: at most the 5 % that a threshold at 0.95 leaves.
    beyond = re.findall(r'class="s6".*?: ([\d.]+) %</title>', picture.body)
    assert 1 < sum(map(float, beyond)) <= 5.1
    assert f"threshold {-detector.offset_:.3g}" in page.text
    detector.score_levels_ = np.array([[0.0, 0.0], [-100 * detector.offset_, 1.0]])
    assert training_scores(detector) is None  # nothing is known near the threshold


def test_scores_far_out_are_counted_and_not_drawn():
    detector = fs.FedPCADetector(1).fit(np.random.default_rng(0).normal(size=(50, 3)))
    cut = -detector.offset_
    detector.score_levels_ = np.array([[0.0, 0.0], [cut, 0.9], [2 * cut, 0.95], [1000 * cut, 1.0]])
    picture = training_scores(detector)
    assert picture.body.count("<rect") == 2
    assert "5 % of the rows score even higher" in picture.remark


def test_sites_of_their_own_have_thresholds_of_their_own():
    model = fs.LocalPCADetector(1).fit(np.random.default_rng(0).normal(size=(60, 3)), sites=np.arange(60) % 3)
    page = Page(models_section([model]))
    widths = np.array([float(a["width"]) for a in page.all("rect", "s0")])
    np.testing.assert_allclose(widths / widths.max(), model.threshold_ / model.threshold_.max(), atol=1e-3)
