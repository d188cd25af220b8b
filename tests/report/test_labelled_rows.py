"""Labelled rows: the ROC curve of a detector, with the point of a threshold that has not seen the labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import Judged, write_report
from fedspan.report.models.labelled_rows import roc

from .report_reading import Page, a_record


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
    ("given", "message"),
    [
        (([[0.0], [1.0]], [0, 1, 1]), r"outlier has the shape \(3,\)"),
        (([[0.0], [1.0]], [0, 2]), "must be True or False"),
        (([0.0, 1.0], [0, 1]), r"X, which has the shape \(2,\)"),
        (([[0.0], [1.0]], [1, 1]), "both kinds of rows"),
        (([[0.0], [1.0]], [0, 0]), "both kinds of rows"),
    ],
)
def test_labels_that_judge_nothing_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Judged(*given)


def test_only_a_detector_can_be_judged(tmp_path):
    judged = Judged(np.eye(2), [0, 1])
    for models in ([], [fs.FedPCA(1).fit(np.eye(4))]):
        with pytest.raises(InputError, match="goes with a detector as the last of the models"):
            write_report(tmp_path / "r.html", title="t", records=a_record(), models=models, judged=judged)
    with pytest.raises(InputError, match="Judged, not a tuple"):
        write_report(tmp_path / "r.html", title="t", records=a_record(), models=[], judged=(np.eye(2), [0, 1]))
    with pytest.raises(InputError, match="1 labelled rows have no finite score"):
        roc(FirstValue(), Judged(np.array([[np.inf], [0.0]]), [0, 1]))
