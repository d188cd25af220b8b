"""What federations, runs and fitted models show in a notebook."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn

import fedspan as fs
from fedspan.federation.record import SIMULATED

X = np.random.default_rng(0).normal(size=(30, 3))


def test_a_federation_shows_its_sites_and_requests_nothing():
    fed = fs.LocalFederation([fs.Site(f"<b>{i}", X) for i in range(12)])
    text = fed._repr_html_()
    assert "&lt;b&gt;0" in text
    assert "<b>0" not in text
    assert "12: " in text
    assert "and 4 more" in text
    assert SIMULATED in text
    assert fed._root.runs == 0
    scaled = fs.FedStandardScaler().fit(fed).transform(fed)
    assert "sums.standardize" in scaled._repr_html_()
    attacked = fed.corrupt(fs.attacks.SignFlip(), ["<b>1"])
    assert "SignFlip" in attacked._repr_html_()
    secure = fs.federate(X, sites=np.arange(30) % 3, policy=fs.Policy(secure_sum=True))
    assert "secure" in secure._repr_html_()


def test_a_run_shows_calls_bytes_and_its_end():
    record = fs.FedPCA(2).fit(X, sites=np.arange(30) % 3).run_
    text = record._repr_html_()
    assert f"{record.bytes_up:,} up" in text
    assert str(record.stopped) in text
    assert SIMULATED in text
    assert SIMULATED not in fs.FedPCA(2).fit(X).run_._repr_html_()


@pytest.mark.parametrize("display", ["diagram", "text"])
def test_a_fitted_model_shows_its_run_below_the_diagram(display):
    model = fs.FedPCA(2)
    with sklearn.config_context(display=display):
        assert "Run of" not in model._repr_mimebundle_().get("text/html", "")
        model.fit(X, sites=np.arange(30) % 3)
        bundle = model._repr_mimebundle_()
        assert ("text/html" in bundle) == (display == "diagram")
        assert ("Run of FedPCA" in bundle.get("text/html", "")) == (display == "diagram")
        if display == "diagram":
            assert "Run of FedPCA" in model._repr_html_()


def test_a_saved_record_keeps_that_it_was_simulated(tmp_path):
    fs.FedPCA(2).fit(X, sites=np.arange(30) % 3).save(tmp_path / "model")
    assert fs.load(tmp_path / "model").run_.simulated


def test_names_of_others_command_no_terminal_and_turn_no_text():
    """Names of columns, groups and sites come from other sites, and people print what a model says of itself."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["dose\x1b[2J", "age\u202e"])
    fed = fs.federate(table, np.arange(40.0), sites=[f"north\u202e\x1b[{i % 2}" for i in range(40)])
    model = fs.FedLinearRegression().fit(fed)
    for text in (model.summary(), model.run_.summary(), model.run_._repr_html_(), fed._repr_html_()):
        assert not {"\x1b", "\u202e"} & set(text)
    assert r"dose\x1b[2J" in model.summary()
