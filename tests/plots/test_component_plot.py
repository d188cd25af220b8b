"""plot_components: pages and axes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), columns=["age", "sex<b>", "size", "dose"])


def test_axes_have_the_names_of_features_and_shares_of_variance(frame):
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCA(2)).fit(frame)
    drawn = fs.plot_components(pipeline, ax=Figure().subplots())
    assert [text.get_text() for text in drawn.get_yticklabels()] == list(frame.columns)
    share = pipeline[-1].explained_variance_ratio_[0]
    assert drawn.get_xticklabels()[0].get_text() == f"1\n{share:.0%}"


def test_a_page_shows_variances_and_loadings(frame, tmp_path):
    model = fs.FedPCADetector(2).fit(fs.federate(frame, sites=np.arange(40) % 2))
    text = fs.plot_components(model, path=tmp_path / "components.html").read_text(encoding="utf-8")
    assert "Explained variance" in text
    assert "Loadings of the first components" in text
    assert "sex&lt;b&gt;" in text
    assert "Simulated" in text


def test_models_without_components_are_refused(frame):
    with pytest.raises(InputError, match="no components_"):
        fs.plot_components(fs.FedStandardScaler().fit(frame), ax=Figure().subplots())
