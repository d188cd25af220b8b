"""Few rows: no call of the group "summaries" is about fewer rows than the owner's `least_set`."""

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
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.steps import find_step
from fedspan.federation.site.transforms import Transform
from fedspan.few_shot.altgdmin import local_gradient
from fedspan.few_shot.parts.fit_moments import local_moments
from fedspan.few_shot.parts.task_coefs import local_normal_equations
from tests.engines.remote.people import authority, user

from .owner_desk import NUMBERS, OFFER, Desk, Wires, numbers

NORMAL = "few_shot.normal_equations"
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
    data = 'target = "y"' + ('\ntask = "t"' if per_task else "")
    return Desk(folder / "a", rules, table(rows, per_task), data)


def weights(step):
    if "autoencoder" not in step and "bigan" not in step:
        return {}
    pytest.importorskip("torch")
    from fedspan.anomaly.autoencoder_detector import autoencoder_network
    from fedspan.anomaly.bigan_detector import bigan_network

    make = autoencoder_network if "autoencoder" in step else bigan_network
    return {"weights": make(3, NETWORK["hidden"], 1).start(np.random.default_rng(0))}


# By step: a payload that is about enough of 60 rows, and what makes it about few.
CASES = [
    (
        "few_shot.normal_equations",
        {"U": np.eye(3), "tasks": np.array([0]), "centre": np.zeros(4)},
        {"parts": 15},
    ),
    (
        "few_shot.normal_equations",
        {"U": np.eye(3), "tasks": np.array([9]), "centre": np.zeros(4)},
        {"parts": 60},
    ),
    (
        "few_shot.start_loadings",
        {"U": np.eye(3), "tasks": np.array([0]), "alpha": 9.0, "intercept": False, "parts": 1},
        {"parts": 60},
    ),
    (
        "few_shot.start_own_product",
        {"U": np.eye(3), "alpha": 9.0, "intercept": True, "parts": 2},
        {"parts": 20},
    ),
    ("few_shot.gradient", {"U": np.eye(3)[:, :1], "parts": 8}, {"parts": 16}),
    ("few_shot.gradient", {"U": np.eye(3)[:, :1], "parts": 8}, {"parts": 3}),  # parts that overlap with those of 8
    ("few_shot.gradient", {"U": np.eye(3)[:, :1]}, {"descend_part": 57}),
    ("few_shot.gradient", {"U": np.eye(3)[:, :1]}, {"fit_part": 57}),
    ("few_shot.fit_moments", {"U": np.eye(3)[:, :1], "intercept": False, "parts": 1, "least": 0}, {"parts": 20}),
    (
        "clustering.cluster_means",
        {"centres": np.zeros((1, 12, 3)), "wanted": np.ones((1, 12), dtype=bool)},
        {"centres": np.zeros((1, 13, 3)), "wanted": np.ones((1, 13), dtype=bool)},
    ),
    ("clustering.cluster_counts", {"centres": np.zeros((1, 12, 3))}, {"centres": np.zeros((1, 60, 3))}),
]


@pytest.mark.parametrize(("step", "payload", "few"), CASES)
def test_a_call_about_few_rows_is_one_of_single_rows(tmp_path, step, payload, few):
    payload = payload | weights(step)
    desk = opened(tmp_path)
    assert isinstance(desk.ask(step, payload=payload), dict)
    assert FEW in desk.ask(step, run="r 2", payload=payload | few)
    assert desk.lines()[-1]["ran"]  # data were read, and it counts
    inner = {f"with {key}": value for key, value in (payload | few).items()}
    summed = desk.ask(OFFER, run="r 3", payload={"what": step, "session": "r 3/0/x", **NUMBERS, **inner})
    assert (FEW in summed) == ("centres" not in few)  # a centre has rows of all sites
    allowing = ['steps = ["summaries", "single rows"]', f'steps = ["{step}"]']
    if not few.keys() & {"fit_part", "descend_part"}:  # there is no such part: its rows can't be counted
        allowing.append("least_set = 1")
    for rules in allowing:
        desk.worker.close()
        desk = opened(tmp_path, rules)
        assert isinstance(desk.ask(step, run=f"r {rules}", payload=payload | few), dict)


@pytest.mark.parametrize("held_back", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    ("step", "payload"),
    [
        ("anomaly.autoencoder_training", TRAINING),
        ("anomaly.autoencoder_training", {**TRAINING, "batch_size": 1}),
        ("anomaly.autoencoder_loss", {}),
        ("anomaly.bigan_training", {**TRAINING, "adversarial": 0.1}),
        ("anomaly.bigan_loss", {}),
    ],
)
def test_networks_are_trained_and_checked_on_blocks_of_rows(tmp_path, step, payload, held_back):
    payload = {**NETWORK, **payload, "held_back": held_back} | weights(step)
    desks = [Desk(tmp_path / f"{rows}", "", table(rows), 'target = "y"') for rows in (99, 100)]
    assert FEW in desks[0].ask(step, payload=payload)
    assert isinstance(desks[1].ask(step, payload=payload), dict)


@pytest.mark.parametrize(
    ("step", "payload", "rows"),
    [
        ("mixed_regression.halves", {"start": np.zeros(3)}, 10),
        ("mixed_regression.held_back_loss", {"models": np.zeros((1, 3))}, 20),
        ("mixed_regression.logistic_refinement", {"models": np.zeros((1, 3)), "part": "train", **MIXED}, 6),
        ("mixed_regression.logistic_change", {"models": np.zeros((1, 3)), "part": "train", **MIXED}, 6),
    ],
)
def test_parts_of_small_tables_are_few_rows(tmp_path, step, payload, rows):
    assert isinstance(opened(tmp_path, "least_rows = 5", rows=rows).ask(step, payload=payload), dict)
    (tmp_path / "fewer").mkdir()
    assert FEW in opened(tmp_path / "fewer", "least_rows = 5", rows=rows - 1).ask(step, payload=payload)


def test_tasks_of_few_rows_are_single_rows(tmp_path):
    payload = {"U": np.eye(3), "tasks": np.array(["t0"]), "centre": np.zeros(4)}
    assert isinstance(opened(tmp_path, per_task=5).ask(NORMAL, payload=payload), dict)
    (tmp_path / "few").mkdir()
    desk = opened(tmp_path / "few", per_task=4)
    assert FEW in desk.ask(NORMAL, payload=payload)
    # The refusal does not reveal which tasks exist.
    assert FEW in desk.ask(NORMAL, run="r 2", payload=payload | {"tasks": np.array(["elsewhere"])})


def test_truncation_does_not_leave_a_single_row(tmp_path):
    frame = table()
    frame["y"] = np.linspace(1.0, 2.0, 60)
    desk = Desk(tmp_path / "a", "", frame, 'target = "y"')
    step = "few_shot.start_own_product"
    payload = {"U": np.eye(3), "intercept": False, "parts": 1}
    assert FEW in desk.ask(step, payload=payload | {"alpha": 1.01})
    assert isinstance(desk.ask(step, run="r 2", payload=payload | {"alpha": 4.0}), dict)
    assert FEW in desk.ask(step, run="r 4", payload=payload | {"alpha": 3.9})  # all but the largest target
    assert not desk.ask(step, run="r 3", payload=payload | {"alpha": 0.5})["product"].any()  # a sum over no rows


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_the_number_of_rows_is_that_of_the_replies(sizes, parts, number, least):
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(len(sizes)), sizes)
    site = fs.Site("a", rng.normal(size=(len(task), 2)), rng.normal(size=len(task)), task).in_call(
        CallContext({}, "r", 0, 0)
    )
    U = np.eye(2)[:, :1]
    payload = {"U": U, "tasks": np.arange(len(sizes)), "centre": np.zeros(2), "parts": parts}
    rows = local_normal_equations(site, **payload)["rows"].min()
    overlap = parts == 3  # as parts of a number that is no power of two do with those of another number
    assert find_step(local_normal_equations).fewest(site, **payload) == (1 if overlap else rows)
    payload = {"U": U, "descend_part": number % parts, "parts": parts}
    rows = local_gradient(site, **payload)["rows"]
    assert find_step(local_gradient).fewest(site, **payload) <= (rows or len(site))
    payload = {"U": U, "intercept": True, "parts": parts, "least": least}
    rows = local_moments(site, **payload)["rows"]
    assert find_step(local_moments).fewest(site, **payload) <= (rows or len(site))


@pytest.mark.parametrize("step", ["combat.site_sums", "combat.products"])
def test_rows_that_are_no_controls_are_counted(tmp_path, step):
    """With a guessed value moved to 0, the controls are all other rows: their sums give the record with that value."""
    frame = table()
    frame["b"] = np.arange(60) % 6
    desk = Desk(tmp_path / "a", 'transforms = ["fedspan"]', frame)
    names = {"names": np.array(["a"])}
    which = {"features": np.array([1]), "covariates": np.array([2])}
    payload = names if step == "combat.site_sums" else which
    guess = {"shift": float(frame["a"][7]), "scale": 1.0}
    guessed = (Transform("sums.shifted_and_scaled", guess),)
    assert isinstance(desk.ask(step, payload={**payload, "controls": -1}), dict)
    assert FEW in desk.ask(step, run="r 2", payload={**payload, "controls": 0}, transforms=guessed)
    assert isinstance(desk.ask(step, run="r 3", payload={**payload, "controls": 1}), dict)  # 50 of 60 rows


def test_tasks_that_a_threshold_selects_are_counted_by_size():
    """The difference of the sums over tasks of 2 rows and more, and of 3 and more, is about the one with 2 rows."""
    task = np.repeat(np.arange(4), [2, 50, 50, 50])
    site = fs.Site("a", np.zeros((152, 2)), np.zeros(152), task)
    payload = {"U": np.eye(2)[:, :1], "intercept": False, "parts": 1}
    assert find_step(local_moments).fewest(site, **payload, least=0) == 2
    assert find_step(local_moments).fewest(site, **payload, least=3) == 150


def federation(desks):
    return RemoteFederation(Wires(*desks), user(), authority([desk.name for desk in desks]), 1)


def test_few_shot_learning_needs_single_rows_for_names_of_tasks(tmp_path):
    def desks(per_task, rules=""):
        for seed, name in enumerate("abc"):
            frame = numbers(60, "pqrs", seed)
            frame["y"] = frame["p"] * np.repeat(np.arange(60 // per_task), per_task) + 0.1 * frame["q"]
            frame["t"] = [f"{name}{i // per_task}" for i in range(60)]
            folder = tmp_path / f"{name} {per_task} {len(rules)}"
            yield Desk(folder, rules, pd.DataFrame(frame), 'target = "y"\ntask = "t"', name)

    with federation(list(desks(10))) as fed, pytest.raises(QuorumError, match="in the group 'single rows'"):
        fs.FedFewShotRegressor(rank=1).fit(fed)
    with federation(list(desks(4, 'steps = ["fedspan"]'))) as fed:
        check_is_fitted(fs.FedFewShotRegressor(rank=1).fit(fed))


@pytest.mark.filterwarnings("ignore")
def test_the_autoencoder_runs_by_summaries_where_there_are_enough_rows(tmp_path):
    pytest.importorskip("torch")
    for rows in (100, 99):
        desks = [
            Desk(tmp_path / f"{name} {rows}", "", numbers(rows, "pqr", k), "", name) for k, name in enumerate("abc")
        ]
        with federation(desks) as fed:
            detector = fs.FedAutoencoderDetector(latent=1, max_rounds=2)
            if rows == 100:
                detector.fit(fed)
            else:
                with pytest.raises(QuorumError, match="in the group 'single rows'"):
                    detector.fit(fed)


def test_folds_are_allowed_by_name_and_are_not_about_few_rows(tmp_path):
    parameters = {"folds": 4, "number": 1, "draw": 0, "by_class": False}
    held, others = (Transform("model_selection.fold", {**parameters, "held": held}) for held in (True, False))
    desk = Desk(tmp_path / "a", 'transforms = ["fedspan"]', numbers(200))
    assert "does not allow the transform 'model_selection.fold'" in desk.ask(transforms=(held,))
    desk = Desk(tmp_path / "b", 'transforms = ["model_selection.fold"]', numbers(200))
    found = [desk.ask(number=k, transforms=(one,)) for k, one in enumerate((held, others))]
    assert [reply["n"] for reply in found] == [50, 150]
    assert "over a selection of rows may be" in desk.ask(number=2, transforms=(held, held))  # a part of a part
    desk = Desk(tmp_path / "c", 'transforms = ["model_selection.fold"]', numbers(60))
    assert "over a selection of rows may be" in desk.ask(transforms=(held,))
