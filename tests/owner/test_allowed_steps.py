"""What the groups of steps hold, held against what protocols really ask and what really leaves."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fedspan.cli.needed_steps import known_estimators, known_protocols

import fedspan as fs
from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.owner.allowed_steps import GROUPS, SINGLE_ROWS, AllowedSteps, install_steps
from tests.laws.protocol_examples import EXAMPLES

#: Steps that are handed to a protocol by its caller, which it cannot name.
HANDED_IN = {
    "fedavg.fedavg": {
        "anomaly.autoencoder_training",
        "anomaly.autoencoder_loss",
    },
    "orthogonal_iteration.orthogonal_iteration": {"pca.product"},
}


@pytest.fixture(scope="module")
def watched():
    """Run every protocol's example; return the steps that each asked for, and those with an entry for each row."""
    install_steps()
    asked, per_row = {}, set()
    for name, example in EXAMPLES.items():
        sites = example.sites()
        rows = {site.name: len(site) for site in sites}
        steps = asked[name] = set()

        def watch(replies, bad, rng, call, rows=rows, steps=steps):
            steps.add(call.step)
            keys = set.intersection(*map(set, replies.values()))
            lengths = {key: [np.shape(reply[key])[:1] for reply in replies.values()] for key in keys}
            if len(replies) > 1 and [(rows[site],) for site in replies] in lengths.values():
                per_row.add(call.step)
            return {site: replies[site] for site in bad}

        fed = fs.LocalFederation(sites, seed=1).corrupt(watch, sites=[sites[0].name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fed.run(example.protocol, **example.settings)
    return asked, per_row


def test_a_reply_with_an_entry_for_each_row_is_no_summary(watched):
    _, per_row = watched
    assert per_row
    assert per_row <= set(SINGLE_ROWS)


def test_the_steps_that_code_names_are_those_that_it_asks_for(watched):
    asked, _ = watched
    needed = known_protocols()
    for name, steps in asked.items():
        assert steps <= needed[name] | HANDED_IN.get(name, set()), name


def test_single_rows_are_installed_steps_and_groups_are_apart():
    install_steps()
    assert set(SINGLE_ROWS) <= set(installed_steps())
    summaries, rows = (set(AllowedSteps([group]).installed()) for group in GROUPS)
    public = {step for step in installed_steps() if step.startswith("fedspan.protocols.") and find_step(step).public}
    assert summaries & rows == public
    assert {step for step in installed_steps() if step.startswith("fedspan.protocols.")} == summaries | rows
    elsewhere = {step for step in installed_steps() if not step.startswith("fedspan.protocols.")}  # of doctests
    assert set(AllowedSteps(["fedspan"]).installed()) - elsewhere == summaries | rows


def test_what_estimators_need_is_found():
    needed = known_estimators()
    assert "pca.fedpg_update" in needed["FedPCA"]
    assert "anomaly.autoencoder_training" in needed["FedAutoencoderDetector"]
    assert "landmarks.distances" in needed["FedTSNE"]
    assert all(steps for steps in needed.values())
