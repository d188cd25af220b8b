"""FedDL: equality with the pooled run, options, faults, and sites of any size."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedspan as fs
from fedspan.errors import InputError, MessageError, QuorumError
from fedspan.landmarks import feddl as module
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts import feddl_settings
from fedspan.linalg import mmd2
from tests.landmarks.landmark_examples import blobs, leaves, run


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def test_one_class_sites_give_the_landmarks_of_the_pooled_rows(digits):
    X, y = digits
    split, pooled = run(X, y, n_landmarks=50), run(X, np.zeros(len(X)), n_landmarks=50)
    assert np.abs(split.points - pooled.points).max() <= 1e-10
    assert split.precision == "double"


def test_landmarks_are_better_than_as_many_rows(digits):
    X, y = digits
    found = run(X, y, n_landmarks=100)
    rng = np.random.default_rng(0)
    reference = np.mean([mmd2(X, X[rng.choice(len(X), 100, replace=False)], found.gamma) for _ in range(3)])
    exact = mmd2(X, found.points, found.gamma)
    assert exact <= 0.3 * reference
    assert found.mmd2 == pytest.approx(exact, rel=0.25)  # the estimate by 1024 directions


def strays(X, found):
    """Return the number of landmarks beyond 1.5 times the distance of the farthest row."""
    out = np.linalg.norm(found.points - found.centre, axis=1)
    return int((out > 1.5 * np.linalg.norm(X - found.centre, axis=1).max()).sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_momentum_moves_no_landmark_out_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 8)) + 4 * (np.arange(600) % 3)[:, None]  # most landmarks begin where there are no rows
    found = run(X, np.arange(600) % 3, n_landmarks=150)
    reference = np.mean([mmd2(X, X[rng.choice(600, 150, replace=False)], found.gamma) for _ in range(5)])
    assert strays(X, found) == 0
    assert mmd2(X, found.points, found.gamma) <= 0.1 * reference


def test_no_step_is_longer_than_a_quarter_of_the_kernels_width():
    X, labels = blobs()
    X[0] += 100.0  # far from the start: a large first step
    before, after = (run(X, labels, rounds=rounds, gamma=4.0) for rounds in (0, 1))
    steps = np.linalg.norm(after.points - before.points, axis=1)
    assert steps.max() <= 0.25 / np.sqrt(2 * after.gamma) * (1 + 1e-9)
    free = replace(module.PLAIN, farthest=np.inf)
    assert (
        np.linalg.norm(run(X, labels, rounds=1, gamma=4.0, variant=free).points - before.points, axis=1).max()
        > steps.max()
    )


def test_sites_that_are_offline_for_most_rounds_are_named():
    X, labels = blobs()
    fed = fs.federate(X, sites=labels, seed=1)
    with pytest.warns(UserWarning, match=r"hardly follow the rows of 2 \(missing in 8 of 10 rounds\)"):
        leaves(fed, "2", at=5).run(feddl, n_landmarks=10, rounds=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leaves(fed, "2", at=9).run(feddl, n_landmarks=10, rounds=10)


def test_every_round_is_in_the_record_and_the_objective_falls():
    X, labels = blobs()
    fed = fs.federate(X, sites=labels, seed=1)
    with fed.begin("run") as running:
        found = feddl(running, n_landmarks=12, rounds=20)
    record = running.record
    followed = record.metric("mmd2")
    assert len(followed) == 21
    assert followed[-1] == found.mmd2 < 0.2 * followed[0]
    assert record.metric("objective")[-1] < record.metric("objective")[0]
    assert [call.step for call in record.calls[:3]] == [
        "sums.sums",
        "sums.centred_sums",
        "landmarks.characteristic",
    ]
    assert len(record.calls) == 23


def test_neither_offset_nor_unit_of_the_data_matters():
    X, labels = blobs()
    plain = run(X, labels, rounds=10)
    moved = run(1e-3 * X + 1e4, labels, rounds=10)
    np.testing.assert_allclose((moved.points - 1e4) / 1e-3, plain.points, atol=1e-5)
    assert moved.gamma == pytest.approx(1e6 * plain.gamma)
    assert moved.mmd2 == pytest.approx(plain.mmd2, rel=1e-4)
    huge = run(1e120 * X, labels, rounds=10)
    np.testing.assert_allclose(huge.points / 1e120, plain.points, rtol=1e-6)


def test_single_precision_is_close_and_halves_the_messages():
    X, labels = blobs()
    double, single = (run(X, labels, precision=precision) for precision in ("double", "single"))
    assert 0 < np.abs(double.points - single.points).max() < 1e-3
    sizes = {}
    for precision in ("double", "single"):
        with fs.federate(X, sites=labels).begin("run") as fed:
            feddl(fed, n_landmarks=200, rounds=1, precision=precision)
        sizes[precision] = fed.record.calls[-1].bytes_up["0"]
    assert sizes["single"] < 0.6 * sizes["double"]


def test_precision_is_chosen_by_the_work_of_a_round(monkeypatch):
    X, labels = blobs()
    assert run(X, labels, rounds=0).precision == "double"
    monkeypatch.setattr(feddl_settings, "SINGLE_ABOVE", 240 * 12 * 4 - 1)
    assert run(X, labels, rounds=0).precision == "single"


def test_weights_are_the_numbers_of_rows():
    X, _ = blobs()
    unequal = np.r_[np.zeros(237, dtype=int), 1, 2, 3]
    assert np.abs(run(X, unequal).points - run(X, np.zeros(240)).points).max() < 1e-10


def test_plain_gradient_descent_is_slower(digits):
    X, y = digits
    settings = {"n_landmarks": 60, "rounds": 30}
    heavy_ball, plain = (run(X, y, **settings, momentum=momentum) for momentum in (0.9, 0.0))
    assert plain.mmd2 > 2 * heavy_ball.mmd2
    assert run(X, y, **settings, momentum=0.0, step_size=1.9).mmd2 < plain.mmd2


def test_with_one_local_step_it_does_not_matter_what_is_sent():
    X, labels = blobs()
    one_round = [run(X, labels, upload=upload, rounds=1).points for upload in ("gradient", "landmarks")]
    np.testing.assert_allclose(one_round[0], one_round[1], rtol=1e-12)
    # Later the sites' step is that of the round before: the paths differ, and lead to the same MMD^2.
    far = [run(X, labels, upload=upload, rounds=30).mmd2 for upload in ("gradient", "landmarks")]
    assert far[0] == pytest.approx(far[1], rel=0.4)


def test_local_steps_help_alike_sites_and_pull_unlike_ones_apart():
    X, labels = blobs()
    settings = {"momentum": 0.0, "rounds": 10}
    alike = np.arange(240) // 3 % 3
    plain = run(X, alike, **settings).mmd2
    for upload in ("gradient", "landmarks"):
        assert run(X, alike, **settings, local_steps=5, upload=upload).mmd2 < 0.8 * plain
        assert run(X, labels, **settings, local_steps=5, upload=upload).mmd2 > 2 * plain


def test_the_run_goes_on_without_a_site_that_drops_out():
    X, labels = blobs()

    def offline(replies, bad, rng, call):
        return {name: ({} if call.number > 8 else replies[name]) for name in bad}

    fed = fs.federate(X, sites=labels, seed=1).corrupt(offline, ["2"])
    with fed.begin("run") as running, pytest.warns(UserWarning, match="missing in 44 of 50"):
        found = feddl(running, n_landmarks=12)
    assert {site for _, site, _ in running.record.failures} == {"2"}
    rest, everything = mmd2(X[labels < 2], found.points, found.gamma), mmd2(X, found.points, found.gamma)
    assert rest < 0.3 * everything


@pytest.mark.parametrize("attack", [fs.attacks.NonFinite(), fs.attacks.WrongShape()])
def test_bad_replies_are_failures_of_their_site(attack):
    X, labels = blobs()
    fed = fs.federate(X, sites=labels, seed=1)
    with fed.corrupt(attack, ["1"]).begin("run") as running, pytest.warns(UserWarning, match="rows of 1"):
        found = feddl(running, n_landmarks=12, rounds=5)
    assert {site for _, site, _ in running.record.failures} == {"1"}
    assert np.isfinite(found.points).all()
    honest = fed.subset(["0", "2"]).run(feddl, random_state=1, n_landmarks=12, rounds=5)
    np.testing.assert_allclose(found.points, honest.points, rtol=1e-10)
    with pytest.raises(QuorumError):
        fed.corrupt(fs.attacks.NonFinite(), ["1", "2"]).run(feddl, n_landmarks=12)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("n", [-80, 80.5])
def test_an_impossible_number_of_rows_excludes_its_site_only(n, first):
    X, labels = blobs()
    fed = fs.federate(X, sites=labels, seed=1)

    def false_count(replies, bad, rng, call):
        return {name: {**replies[name], "n": n} if call.number >= first else replies[name] for name in bad}

    with fed.corrupt(false_count, ["1"]).begin("run") as running, pytest.warns(UserWarning, match="rows of 1"):
        found = feddl(running, n_landmarks=12, rounds=5)
    assert {(site, why.split(":")[0]) for _, site, why in running.record.failures} == {("1", "miscounted")}
    assert mmd2(X[labels != 1], found.points, found.gamma) < 0.1


def test_the_error_about_false_sums_names_the_means():
    X, labels = blobs()

    def huge(replies, bad, rng, call):
        return {name: {**replies[name], "sum": replies[name]["sum"] * 1e30} for name in bad}

    with pytest.raises(InputError, match=r"beside means of up to \S+e\+59: .* sites whose sums are true"):
        fs.federate(X, sites=labels).corrupt(huge, ["1"]).run(feddl, n_landmarks=12)


def test_settings_that_cannot_work_are_refused():
    X, labels = blobs()
    for settings, message in [
        ({"n_landmarks": 1}, "n_landmarks=1 must be a whole number of at least 2"),
        ({"step_size": 3.8}, r"step_size=3.8 must be a finite number above 0 and below 3.8, twice 1 \+ momentum"),
        ({"upload": "rows"}, "upload='rows' must be one of 'gradient', 'landmarks'"),
        ({"precision": "half"}, "precision"),
        ({"momentum": 1.0}, "momentum"),
        ({"gamma": 0}, "gamma"),
        ({"local_steps": 0}, "local_steps"),
        ({"n_frequencies": -1}, "n_frequencies"),
    ]:
        with pytest.raises(InputError, match=message):
            run(X, labels, **settings)
    with pytest.raises(InputError, match="variances add up to 0"):
        run(np.ones((6, 2)), np.arange(6) % 2)


@pytest.mark.parametrize(("key", "n"), [("pull", 10**9), ("squares", 10**6), ("characteristic", 0)])
def test_a_number_of_rows_that_changes_is_refused(key, n):
    def false_count(replies, bad, rng, call):
        return {name: {**replies[name], "n": n} if key in replies[name] else replies[name] for name in bad}

    X = np.random.default_rng(0).normal(size=(40, 3))
    fed = fs.federate(X, sites=np.arange(40) % 4).corrupt(false_count, ["2"])
    with pytest.raises(MessageError, match="number of rows has changed, or is false"):
        fed.run(feddl, n_landmarks=5, rounds=2, n_frequencies=8)


def test_landmarks_know_the_number_of_their_rows():
    def absent_at_first(replies, bad, rng, call):
        return {name: None if call.number < 2 else replies[name] for name in bad}

    X = np.random.default_rng(0).normal(size=(40, 3))
    fed = fs.federate(X, sites=np.arange(40) % 4)
    found = fed.corrupt(absent_at_first, ["2"]).run(feddl, n_landmarks=5, rounds=2, n_frequencies=8)
    assert (found.n, found.sites) == (40, ("0", "1", "2", "3"))
