"""What a summary is made of: no call of the group "summaries" is about fewer rows than the owner wants."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.validation import check_is_fitted

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.errors import QuorumError
from fedspan.federation.site.steps import find_step
from fedspan.few_shot.altgdmin import local_gradient
from fedspan.few_shot.parts.fit_moments import local_moments
from fedspan.few_shot.parts.task_coefs import local_normal_equations
from tests.engines.remote.people import authority, user

from .desk import NUMBERS, OFFER, Desk, Wires, numbers

NORMAL = "fedspan.few_shot.parts.task_coefs.local_normal_equations"
FEW = "only where its numbers are about 5 rows or more"
NETWORK = {"hidden": np.array([], dtype=np.int64), "latent": 1, "split": 7}
TRAINING = {"local_epochs": 1, "batch_size": 128, "step_size": 0.1, "seed": 1}
MIXED = {"rate": 0.1, "local_steps": 1, "shares": np.ones(1), "variance": None}


def table(rows=60, per_task=None):
    frame = numbers(rows, "abcy")
    frame["y"] = (frame["y"] > 0).astype(int)
    if per_task:
        frame["t"] = [f"t{i // per_task}" for i in range(rows)]
    return frame


def opened(folder, rules="", rows=60, per_task=None):
    data = 'label = "y"' + ('\ntask = "t"' if per_task else "")
    return Desk(folder / "a", rules, table(rows, per_task), data)


def weights(step):
    if "autoencoder" not in step and "bigan" not in step:
        return {}
    pytest.importorskip("torch")
    from fedspan.anomaly.parts.autoencoder import autoencoder_network
    from fedspan.anomaly.parts.bigan import bigan_network

    make = autoencoder_network if "autoencoder" in step else bigan_network
    return {"weights": make(3, NETWORK["hidden"], 1).start(np.random.default_rng(0))}


# By step: a payload that is about enough of 60 rows, and what makes it about few.
CASES = [
    (
        "task_coefs.local_normal_equations",
        {"U": np.eye(3), "tasks": np.array([0]), "centre": np.zeros(4)},
        {"parts": 15},
    ),
    (
        "task_coefs.local_normal_equations",
        {"U": np.eye(3), "tasks": np.array([9]), "centre": np.zeros(4)},
        {"parts": 60},
    ),
    (
        "truncated_moments.local_loadings",
        {"U": np.eye(3), "tasks": np.array([0]), "alpha": 9.0, "intercept": False, "parts": 1},
        {"parts": 60},
    ),
    (
        "truncated_moments.local_own_product",
        {"U": np.eye(3), "alpha": 9.0, "intercept": True, "parts": 2},
        {"parts": 20},
    ),
    ("gdmin.local_gradient", {"U": np.eye(3)[:, :1], "parts": 12}, {"parts": 15}),
    ("gdmin.local_gradient", {"U": np.eye(3)[:, :1]}, {"descend_part": 57}),
    ("gdmin.local_gradient", {"U": np.eye(3)[:, :1]}, {"fit_part": -2}),
    ("fit_moments.local_moments", {"U": np.eye(3)[:, :1], "intercept": False, "parts": 1, "least": 0}, {"parts": 20}),
    (
        "federated_k_means.local_means",
        {"centres": np.zeros((1, 12, 3)), "wanted": np.ones((1, 12), dtype=bool)},
        {"centres": np.zeros((1, 13, 3)), "wanted": np.ones((1, 13), dtype=bool)},
    ),
    ("federated_k_means.local_counts", {"centres": np.zeros((1, 12, 3))}, {"centres": np.zeros((1, 60, 3))}),
    ("autoencoder.local_training", {**NETWORK, **TRAINING, "held_back": 0.1}, {"held_back": 1.0}),
    ("autoencoder.local_training", {**NETWORK, **TRAINING, "held_back": 0.1}, {"batch_size": 1}),
    # as few batches as that allows, of nearly equal size: some have four rows
    ("autoencoder.local_training", {**NETWORK, **TRAINING, "held_back": 0.1}, {"batch_size": 5}),
    ("autoencoder.local_loss", {**NETWORK, "held_back": 0.1}, {"held_back": 0.0}),
    ("bigan.local_training", {**NETWORK, **TRAINING, "held_back": 0.1, "adversarial": 0.1}, {"held_back": 0.95}),
    ("bigan.local_loss", {**NETWORK, "held_back": 0.1}, {"held_back": 0.05}),
]


@pytest.mark.parametrize(("name", "payload", "few"), CASES)
def test_a_call_about_few_rows_is_one_of_single_rows(tmp_path, name, payload, few):
    step = f"fedspan.protocols.{name}"
    payload = payload | weights(step)
    desk = opened(tmp_path)
    assert isinstance(desk.ask(step, payload=payload), dict)
    assert FEW in desk.ask(step, run="r 2", payload=payload | few)
    assert desk.lines()[-1]["ran"]  # the data were looked at, and it counts
    inner = {f"with {key}": value for key, value in (payload | few).items()}
    summed = desk.ask(OFFER, run="r 3", payload={"what": step, "session": "r 3/0/x", **NUMBERS, **inner})
    assert (FEW in summed) == ("centres" not in few)  # of which there are rows at all sites
    allowing = ['steps = ["summaries", "single rows"]', f'steps = ["{step}"]']
    if not few.keys() & {"fit_part", "descend_part"}:  # there is no such part: of how many rows cannot be told
        allowing.append("least_set = 1")
    for rules in allowing:
        desk.worker.close()
        desk = opened(tmp_path, rules)
        assert isinstance(desk.ask(step, run=f"r {rules}", payload=payload | few), dict)


@pytest.mark.parametrize(
    ("name", "payload", "rows"),
    [
        ("count_clusters.local_halves", {"start": np.zeros(3)}, 10),
        ("logistic_fedx.local_held_back_loss", {"models": np.zeros((1, 3))}, 20),
        ("logistic_fedx.local_logistic_refinement", {"models": np.zeros((1, 3)), "part": "held back", **MIXED}, 20),
        ("logistic_fedx.local_logistic_change", {"models": np.zeros((1, 3)), "part": "held back", **MIXED}, 20),
    ],
)
def test_parts_of_small_tables_are_few_rows(tmp_path, name, payload, rows):
    step = f"fedspan.protocols.{name}"
    assert isinstance(opened(tmp_path, rows=rows).ask(step, payload=payload), dict)
    (tmp_path / "fewer").mkdir()
    assert FEW in opened(tmp_path / "fewer", "least_rows = 5", rows=rows - 1).ask(step, payload=payload)


@pytest.mark.parametrize(
    "step", [NORMAL, "fedspan.few_shot.parts.tasks.local_tasks", "fedspan.few_shot.parts.task_coefs.local_coefs"]
)
def test_tasks_of_few_rows_are_single_rows_whichever_is_asked_for(tmp_path, step):
    payload = {"U": np.eye(3), "tasks": np.array(["t0"]), "centre": np.zeros(4)}
    if step != NORMAL:
        payload = {"intercept": False} | ({} if "local_tasks" in step else {"U": np.eye(3), "ridge": 0.0, "below": 1})
    assert isinstance(opened(tmp_path, per_task=5).ask(step, payload=payload), dict)
    (tmp_path / "few").mkdir()
    desk = opened(tmp_path / "few", per_task=4)
    assert FEW in desk.ask(step, payload=payload)
    if step == NORMAL:  # the refusal does not tell which tasks are here
        assert FEW in desk.ask(step, run="r 2", payload=payload | {"tasks": np.array(["nobody"])})


def test_truncation_does_not_leave_a_single_row(tmp_path):
    frame = table()
    frame["y"] = np.linspace(1.0, 2.0, 60)
    desk = Desk(tmp_path / "a", "", frame, 'label = "y"')
    step = "fedspan.few_shot.parts.truncated_moments.local_own_product"
    payload = {"U": np.eye(3), "intercept": False, "parts": 1}
    assert FEW in desk.ask(step, payload=payload | {"alpha": 1.01})
    assert isinstance(desk.ask(step, run="r 2", payload=payload | {"alpha": 4.0}), dict)
    assert not desk.ask(step, run="r 3", payload=payload | {"alpha": 0.5})["product"].any()  # of no row at all


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_as_many_rows_as_the_replies_themselves_say(sizes, parts, number, least):
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(len(sizes)), sizes)
    site = fs.Site("a", rng.normal(size=(len(task), 2)), rng.normal(size=len(task)), task).at_work({}, 0, 0)
    U = np.eye(2)[:, :1]
    told = {"U": U, "tasks": np.arange(len(sizes)), "centre": np.zeros(2), "parts": parts}
    assert find_step(local_normal_equations).fewest(site, **told) == local_normal_equations(site, **told)["rows"].min()
    told = {"U": U, "descend_part": number % parts, "parts": parts}
    rows = local_gradient(site, **told)["rows"]
    assert find_step(local_gradient).fewest(site, **told) <= (rows or len(site))
    told = {"U": U, "intercept": True, "parts": parts, "least": least}
    assert find_step(local_moments).fewest(site, **told) == (local_moments(site, **told)["rows"] or len(site))


def federation(desks):
    return RemoteFederation(Wires(*desks), user(), authority([desk.name for desk in desks]), 1)


def test_few_shot_learning_runs_by_summaries_where_tasks_are_large_enough(tmp_path):
    def desks(per_task, rules=""):
        for seed, name in enumerate("abc"):
            frame = numbers(60, "pqrs", seed)
            frame["y"] = frame["p"] * np.repeat(np.arange(60 // per_task), per_task) + 0.1 * frame["q"]
            frame["t"] = [f"{name}{i // per_task}" for i in range(60)]
            folder = tmp_path / f"{name} {per_task} {len(rules)}"
            yield Desk(folder, rules, pd.DataFrame(frame), 'label = "y"\ntask = "t"', name)

    with federation(list(desks(10))) as fed:
        model = fs.FedFewShotRegressor(rank=1).fit(fed)
    check_is_fitted(model)
    with federation(list(desks(4))) as fed, pytest.raises(QuorumError, match="in the group 'single rows'"):
        fs.FedFewShotRegressor(rank=1).fit(fed)
    with federation(list(desks(4, 'steps = ["fedspan"]'))) as fed:
        fs.FedFewShotRegressor(rank=1).fit(fed)


@pytest.mark.filterwarnings("ignore")
def test_the_autoencoder_runs_by_summaries_where_there_are_rows_enough(tmp_path):
    pytest.importorskip("torch")
    for rows in (46, 45):
        desks = [
            Desk(tmp_path / f"{name} {rows}", "", numbers(rows, "pqr", k), "", name) for k, name in enumerate("abc")
        ]
        with federation(desks) as fed:
            detector = fs.FedAutoencoderDetector(latent=1, max_rounds=2)
            if rows == 46:
                detector.fit(fed)
            else:
                with pytest.raises(QuorumError, match="in the group 'single rows'"):
                    detector.fit(fed)
