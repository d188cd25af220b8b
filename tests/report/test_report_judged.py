"""Judging a detector: its ROC curve, with the point of a threshold that has not seen the labels; and without labels."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from report_reading import Page, a_record
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import Judged, write_report
from fedspan.report.models.detector_pictures import training_scores
from fedspan.report.models.model_section import models_section
from fedspan.report.sections.labelled_rows import roc


class FirstValue:
    """A detector whose anomaly score is the first value of a row; above 2 it is an outlier."""

    offset_ = -2.0

    def score_samples(self, X):
        return -np.asarray(X)[:, 0]


def test_the_point_is_that_of_the_learned_threshold_by_hand():
    # Normal rows 0, 1, 3; outliers 2, 4, 5, 6: above 2 are one of three and three of four.
    X = np.array([[0.0], [1], [3], [2], [4], [5], [6]])
    picture = roc(FirstValue(), Judged(X, [0, 0, 0, 1, 1, 1, 1]))
    assert "finds 75 % of 4 outliers and flags 33.3 % of 3 normal rows" in picture.remark
    assert f"{11 / 12:.4f}".rstrip("0") in picture.remark  # eleven of the twelve pairs are in order
    page = Page(picture.body)
    titles = [words for words in page.words if words.startswith("the learned threshold")]
    assert titles == ["the learned threshold at 0.3333: 0.75"]
    assert page.all("circle")[-1]["r"] == "5.5"


def test_rows_pass_through_the_models_before_it(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 4)) * [100, 1, 1, 1], columns=list("abcd"))
    fed = fs.federate(X, sites=np.arange(200) % 4)
    scaler = fs.FedStandardScaler().fit(fed)
    detector = fs.FedPCADetector(2).fit(scaler.transform(fed))
    rows = pd.concat([X, X + rng.normal(size=(200, 4)) * [300, 3, 3, 3]])
    judged = Judged(rows, np.repeat([False, True], 200))
    area = roc_auc_score(judged.outlier, -detector.score_samples(scaler.transform(rows)))
    records = [scaler.run_, detector.run_]
    page = write_report(tmp_path / "r.html", title="t", records=records, models=[scaler, detector], judged=judged)
    assert f"Area under the curve: {area:.4f}".rstrip("0") in Page(page.read_text()).text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([[0.0], [1.0]], [0, 1, 1]), r"outlier has the shape \(3,\)"),
        (([[0.0], [1.0]], [0, 2]), "must be True or False"),
        (([0.0, 1.0], [0, 1]), r"X, which has the shape \(2,\)"),
        (([[0.0], [1.0]], [1, 1]), "both kinds of rows"),
        (([[0.0], [1.0]], [0, 0]), "both kinds of rows"),
    ],
)
def test_labels_that_judge_nothing_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        Judged(*given)


def test_only_a_detector_can_be_judged(tmp_path):
    judged = Judged(np.eye(2), [0, 1])
    for models in ([], [fs.FedPCA(1).fit(np.eye(4))]):
        with pytest.raises(InputError, match="goes with a detector as the last of the models"):
            write_report(tmp_path / "r.html", title="t", records=a_record(), models=models, judged=judged)
    with pytest.raises(InputError, match="Judged, not a tuple"):
        write_report(tmp_path / "r.html", title="t", records=a_record(), models=[], judged=(np.eye(2), [0, 1]))
    with pytest.raises(InputError, match="1 rows to judge by have no finite score"):
        roc(FirstValue(), Judged(np.array([[np.inf], [0.0]]), [0, 1]))


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


def test_scores_far_out_are_told_and_not_drawn():
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
