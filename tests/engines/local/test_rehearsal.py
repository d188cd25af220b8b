"""A plan by rehearsal covers all that the study requests on real rows, and no other settings of it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.engines.local.rehearsal import RehearsedColumns, rehearse
from tests.laws.estimator_examples import CLASSES, make, target_of

KINDS = dict.fromkeys("abcde", "number")


def plan_of(work, kinds=KINDS, target=(), task=None):
    return rehearse(work, dict.fromkeys("xyz", RehearsedColumns(kinds, target, task)), "", fs.Policy())


def objections(work, plan, sites):
    """Run `work` on these sites, and return what its calls have else than the plan."""
    fed, found = fs.LocalFederation(sites), []
    carry, steps = fed._root.engine.call, [step for run in plan.runs for step in run.steps]

    def call(call, to, *rest):
        if call.step.runs is None and not call.session:
            ids = tuple(one.id for one in call.transforms)
            fitting = [one for one in steps if one.fits(call.step.id, call.how, ids)]
            payload = call.payload_of(call.to[0])
            found.append(min((one.other(payload, call.transforms) for one in fitting), key=len, default=call.step.id))
        return carry(call, to, *rest)

    fed._root.engine.call = call
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work(fed)
    assert found
    return {one for one in found if one}


def real_sites(target):
    """Return sites whose tables have a constant column, whole numbers, and another scale than made-up rows."""
    rng = np.random.default_rng(5)
    X = np.round(rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5)) * 100)
    X[:, 2] = 7.0
    X += np.linspace(0.0, 0.1, 60)[:, None] * (np.arange(5) != 2)
    frame, number = pd.DataFrame(X, columns=list("abcde")), np.arange(60)
    task = (number % 4).astype(str)
    return [
        fs.Site(name, frame[number % 3 == k], target[number % 3 == k], task[number % 3 == k])
        for k, name in enumerate("xyz")
    ]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_plan_covers_the_calls_on_real_rows(kind):
    def work(fed):
        make(kind).fit(fed)

    target = target_of(kind)
    plan = plan_of(work, target=("time", "event")[: target.ndim], task="task")
    assert objections(work, plan, real_sites(target)) == set()


def scaled(fed):
    shown = fs.FedStandardScaler().fit(fed).transform(fed)
    return fs.FedPCA(2, solver="subspace_iteration", max_rounds=5).fit(shown)


def folds(fed):
    return fs.model_selection.cross_validate(fs.FedPCA(2), fed, cv=3)


@pytest.mark.parametrize("work", [scaled, folds])
def test_a_plan_covers_studies_through_transforms(work):
    sites = real_sites(np.zeros(60))
    assert objections(work, plan_of(work), sites) == set()


def test_a_plan_fixes_what_the_user_chooses_of_arrays_and_transforms():
    def counts(edges):
        return lambda fed: fs.statistics.histogram(fed, "a", bins=edges)

    plan = plan_of(counts([0.0, 50.0, 100.0]))
    sites = real_sites(np.zeros(60))
    assert objections(counts([0.0, 50.0, 100.0]), plan, sites) == set()
    assert any("was planned" in one for one in objections(counts([0.0, 41.9, 42.1]), plan, sites))

    def in_folds(number):
        return lambda fed: fs.model_selection.cross_validate(fs.FedPCA(2), fed, cv=number)

    plan = plan_of(in_folds(3))
    other = objections(in_folds(7), plan, real_sites(np.zeros(60)))
    assert any("transform 1 is" in one for one in other), other
