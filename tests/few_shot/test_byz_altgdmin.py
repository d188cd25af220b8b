"""The representation that many regressions share, when sites are malicious, fail, vanish or are killed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Replies
from fedspan.few_shot import byz_altgdmin as byz_altgdmin_module
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts.task_coefs import median_coefs
from fedspan.linalg import subspace_distance

from .few_shot_examples import SITES, N, Q, R, by_rows, by_tasks, error, learn, rewriting

pytestmark = pytest.mark.slow


def test_the_size_of_the_coefficients_is_a_median_that_malicious_sites_do_not_move(data):
    """It takes the place of sigma_1: by a mean, steps would be a million times too short."""
    reported = [np.diag([4.0, 1.0])] * 3 + [np.diag([9.0, 0.0]), np.diag([1e6, 1e6])]
    moment, _ = byz_altgdmin_module._second_moment(Replies({f"{i}": {"moment": M} for i, M in enumerate(reported)}, {}))
    np.testing.assert_allclose(moment, reported[0], atol=1e-9)

    def inflated(replies, bad, rng, call):
        return {site: {key: 1e6 * v if key == "moment" else v for key, v in replies[site].items()} for site in bad}

    fed = by_rows(data)
    clean = error(learn(fed, iterations=10), data)
    assert clean < 1e-3
    assert error(learn(fed.corrupt(inflated, sites=fed.sites[:3]), iterations=10), data) < 10 * clean


ATTACKS = {
    "reverse": attacks.ScaledReverse(10.0),
    "flip": attacks.SignFlip(),
    "little": attacks.ALittleIsEnough(1.5),
    "inner product": attacks.InnerProduct(0.5),
    "mimic": attacks.Mimic(),
    "noise": attacks.RandomNoise(100.0),
    "largest numbers": attacks.Ones(1.7e308),
    "not finite": attacks.NonFinite(),
    "shape": attacks.WrongShape(),
    "largest numbers for one row": lambda replies, bad, rng, call: {
        site: {
            key: 1 if isinstance(value, int) else np.full(np.shape(value), 1.7e308) if np.ndim(value) else 1.7e308
            for key, value in replies[site].items()
            if key != "task"
        }
        for site in bad
        if call.step != "few_shot.tasks"
    },
    "redrawn": attacks.Redrawn(attacks.ScaledReverse(10.0), 2),
}


@pytest.mark.parametrize("split", [by_rows, by_tasks])
@pytest.mark.parametrize("attack", ATTACKS)
def test_two_malicious_sites_of_eight_in_every_call_change_nothing_in_the_end(data, split, attack):
    fed = split(data)
    found = learn(fed.corrupt(ATTACKS[attack], sites=fed.sites[1:3]))
    assert error(found, data) < 1e-3


def just_below(times, direction):
    """Gradients of `times` the median length of the honest ones, along the reversed mean or one fixed direction."""

    def attack(replies, bad, rng, call):
        if call.step != "few_shot.gradient":
            return {}
        honest = np.stack([r["gradient"] / r["rows"] for site, r in replies.items() if site not in bad])
        false = (
            -honest.mean(axis=0) if direction == "reverse" else np.random.default_rng(9).normal(size=honest[0].shape)
        )
        false *= times * np.median(np.linalg.norm(honest, axis=(1, 2))) / np.linalg.norm(false)
        return {site: {**replies[site], "gradient": false * replies[site]["rows"]} for site in bad}

    return attack


@pytest.mark.parametrize("times", [0.5, 9.9])
@pytest.mark.parametrize("direction", ["reverse", "fixed"])
@pytest.mark.parametrize("split", [by_rows, by_tasks])
def test_attacks_just_below_the_norm_threshold_are_outvoted(data, split, direction, times):
    fed = split(data)
    bad = fed.corrupt(just_below(times, direction), sites=fed.sites[:2])
    with bad.begin("test") as run:
        found = byz_altgdmin(run, rank=R, n_columns=N, iterations=20)
    assert error(found, data) < 1e-3
    assert set(run.record.metric("refused")) == {""}
    if times == 9.9:
        assert max(found.weights[site] for site in fed.sites[:2]) < 0.05


@pytest.mark.parametrize("factor", [-10.0, 0.0, 1e9])
def test_false_second_moments_do_not_make_the_step_unsafe(data, factor):
    """Also where every site has one task only, so that honest second moments differ as much as can be."""

    def attack(replies, bad, rng, call):
        if call.step != "few_shot.gradient":
            return {}
        return {site: {**replies[site], "moment": factor * replies[site]["moment"]} for site in bad}

    for sites in (SITES, Q):
        fed = by_tasks(data, sites=sites)
        bad = fed.corrupt(attack, sites=fed.sites[: sites // 3])
        assert error(learn(bad, iterations=30), data) < 1e-2


def colluding(scale, alternate=False):
    """All bad sites send the same: the honest mean times `scale`, its sign changing from call to call or not."""

    def attack(replies, bad, rng, call):
        if call.step != "few_shot.gradient":
            return {}
        mean = np.mean([r["gradient"] / r["rows"] for site, r in replies.items() if site not in bad], axis=0)
        factor = -scale if alternate and call.number % 2 else scale
        return {site: {**replies[site], "gradient": factor * mean * replies[site]["rows"]} for site in bad}

    return attack


@pytest.mark.parametrize(
    "attack", [colluding(-1.0), colluding(-0.3), colluding(3.0, alternate=True)], ids=["flip", "weak", "turns"]
)
@pytest.mark.parametrize("split", [by_rows, by_tasks])
def test_colluding_and_alternating_sites_are_outvoted(data, split, attack):
    fed = split(data)
    assert error(learn(fed.corrupt(attack, sites=fed.sites[:2]), iterations=30), data) < 1e-3


@pytest.mark.parametrize("malicious", [3, 4])
@pytest.mark.parametrize(
    "attack", [colluding(-1.0), just_below(9.9, "reverse"), just_below(2.0, "fixed")], ids=["flip", "far", "near"]
)
def test_the_result_is_never_worse_than_the_start_at_most_of_the_sites(attack, malicious):
    """Four of nine sites with tasks of their own can reverse the descent; the start they can't take away."""
    made = make_few_shot_tasks(40, 54, 3, 60, 1, seed=0)
    fed = fs.federate(made.X, made.y, sites=made.task % 9, task=made.task, seed=1)
    bad = fed.corrupt(attack, sites=fed.sites[:malicious])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, found = (bad.run(byz_altgdmin, rank=3, n_columns=40, iterations=k) for k in (0, 30))
    better = [_loss(made, site, found.basis) <= _loss(made, site, start.basis) * (1 + 1e-9) for site in range(9)]
    assert sum(better) >= 5


def apart(attack):
    """The same attack with gradients that are not quite equal."""

    def changed(replies, bad, rng, call):
        written = attack(replies, bad, rng, call)
        return {
            site: {key: value * (1 - 1e-3 * i) if key == "gradient" else value for key, value in reply.items()}
            for i, (site, reply) in enumerate(written.items())
        }

    return changed


def test_a_start_that_wins_the_vote_is_returned_with_a_warning():
    made = make_few_shot_tasks(40, 54, 3, 60, 1, seed=0)
    fed = fs.federate(made.X, made.y, sites=made.task % 9, task=made.task, seed=1)
    bad = fed.corrupt(apart(just_below(2.0, "fixed")), sites=fed.sites[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = bad.run(byz_altgdmin, rank=3, n_columns=40, iterations=0)
    with bad.begin("test") as run, pytest.warns(UserWarning, match="the start fits the rows of . of 9 sites better"):
        found = byz_altgdmin(run, rank=3, n_columns=40, iterations=30)
    assert run.record.metric("votes_for_start")[-1] >= 5
    np.testing.assert_allclose(found.basis, start.basis)


def _sites_with_growing_noise():
    """Ten sites with rows of all tasks, from quiet ones to noisy ones, and the three quietest."""
    made = make_few_shot_tasks(30, 40, 3, 120, 10, seed=0)
    rng = np.random.default_rng(1)
    names = np.unique(made.sites)
    noise = dict(zip(names, np.linspace(0.2, 2.0, 10)[rng.permutation(10)], strict=True))
    y = made.y + np.array([noise[s] for s in made.sites]) * rng.standard_normal(len(made.y))
    return made, fs.federate(made.X, y, sites=made.sites, task=made.task), sorted(noise, key=noise.get)[:3]


@pytest.mark.parametrize("malicious", [1, 3])
def test_false_losses_cannot_undo_the_descent(malicious):
    made, fed, _ = _sites_with_growing_noise()

    def attack(replies, bad, rng, call):
        if call.step == "few_shot.preference":
            return {site: {"start": True} for site in bad}
        return {s: {**replies[s], "loss": 0.0 if call.number < 4 else 1e9} for s in bad if "loss" in replies[s]}

    honest, start = learn(fed), learn(fed, iterations=0)
    found = learn(fed.corrupt(attack, sites=fed.sites[:malicious]))
    assert error(honest, made) < 0.6 * error(start, made)
    np.testing.assert_allclose(error(found, made), error(honest, made), rtol=1e-3)


def test_quiet_sites_that_drop_out_do_not_undo_the_descent():
    made, fed, quiet = _sites_with_growing_noise()
    gone = fed.corrupt(lambda replies, bad, rng, call: dict.fromkeys(bad) if call.number >= 4 else {}, sites=quiet)
    never = fed.subset([site for site in fed.sites if site not in quiet])
    with never.begin("test") as run:  # with the others alone, from another start, to the same end
        expected = byz_altgdmin(run, rank=R, n_columns=N, iterations=50)
    assert error(learn(gone, iterations=50), made) == pytest.approx(error(expected, made), rel=1e-3)


@pytest.mark.parametrize("vote", [1, "yes", None, np.array([True])], ids=str)
def test_malformed_votes_do_not_count(data, vote):
    fed = by_rows(data)
    attack = rewriting("few_shot.preference", lambda reply: {"start": vote})
    with fed.corrupt(attack, sites=fed.sites[:2]).begin("test") as run:
        byz_altgdmin(run, rank=R, n_columns=N, iterations=20)
    assert (run.record.metric("votes_for_start")[-1], run.record.metric("votes")[-1]) == (0, 6)


def _loss(made, site, U):
    """Mean squared residual per degree of freedom of a site's tasks, by a loop over them."""
    squares, free = 0.0, 0
    for k in range(site, 54, 9):
        X, y = made.X[made.task == k], made.y[made.task == k]
        b = np.linalg.lstsq(X @ U, y, rcond=None)[0]
        squares, free = squares + np.sum((X @ U @ b - y) ** 2), free + len(y) - U.shape[1]
    return squares / free


def test_sites_that_drop_for_good_and_a_resume_in_the_middle(data, tmp_path):
    """Two sites vanish for good, one is malicious and alternates, and the run is killed after that and resumed."""

    class Killer(fs.federation.Observer):
        def round(self, number, of):
            if number == 9:
                raise KeyboardInterrupt

    def federation(**options):
        fed = by_tasks(data, **options)
        gone = lambda replies, bad, rng, call: dict.fromkeys(bad) if call.number >= 6 else {}  # noqa: E731
        return fed.corrupt(colluding(3.0, alternate=True), sites=["1"]).corrupt(gone, sites=["4", "6"])

    def run(fed):
        return learn(fed, aggregator=aggregation.MultiKrum(2, 4), iterations=30)

    expected = run(federation())
    killed = federation(run_dir=tmp_path)
    killed.observe(Killer())
    with pytest.raises(KeyboardInterrupt):
        run(killed)
    found = run(federation(run_dir=tmp_path))
    assert found.basis.tobytes() == expected.basis.tobytes()
    assert found.weights == expected.weights
    assert error(found, data) < 1e-3


def test_longer_gradients_are_refused_and_recorded(data):
    fed = by_rows(data)
    bad = fed.corrupt(just_below(12.0, "reverse"), sites=["site-03"])
    with bad.begin("test") as run:
        byz_altgdmin(run, rank=R, n_columns=N, iterations=3)
        assert run.record.metric("refused") == ["site-03"] * 3
    with bad.begin("test") as run:
        byz_altgdmin(run, rank=R, n_columns=N, iterations=3, threshold=None)
        assert run.record.metric("refused") == [""] * 3
    with bad.begin("test") as run:
        byz_altgdmin(run, rank=R, n_columns=N, iterations=3, threshold=1.0)
    assert all(len(names.split(", ")) == 4 for names in run.record.metric("refused"))  # the median itself stays
    with pytest.raises(InputError, match=r"threshold=0\.5 must be a finite number of at least 1"):
        learn(fed, threshold=0.5)


def test_the_mean_of_gradients_fails_where_medians_do_not(data):
    fed = by_rows(data)
    bad = fed.corrupt(attacks.ScaledReverse(8.0, steps=["few_shot.gradient"]), sites=fed.sites[:2])
    assert error(learn(bad, aggregator=aggregation.Mean()), data) > 0.5
    for aggregator in (None, aggregation.CoordinateMedian(), aggregation.MultiKrum(2, 4), aggregation.TrimmedMean(2)):
        assert error(learn(bad, aggregator=aggregator), data) < 1e-4
    assert error(learn(bad, aggregator=aggregation.MedianOfMeans(4)), data) < 1e-4  # both in one group of four
    huge = fed.corrupt(attacks.ScaledReverse(1e9, steps=["few_shot.gradient"]), sites=fed.sites[:2])
    with huge.begin("test") as run:  # six are too few for Krum with f = 2: the others are shortened, not left out
        found = byz_altgdmin(run, rank=R, n_columns=N, iterations=20, aggregator=aggregation.MultiKrum(2, 4))
    assert error(found, data) < 1e-4
    assert run.record.metric("refused")[0] == "site-00"
    assert run.record.metric("copies")[0] == "site-01"  # its gradient is the same
    with pytest.raises(InputError, match="groups=9 is more than the 8 values"):
        learn(fed, aggregator=aggregation.MedianOfMeans(9))


RULES = {
    "groups": (aggregation.MedianOfMeans(8), "MedianOfMeans(groups=5)"),
    "Krum": (aggregation.Krum(2), "Krum(f=1)"),
    "MultiKrum": (aggregation.MultiKrum(2, 6), "MultiKrum(f=1, m=4)"),
    "trimmed": (aggregation.TrimmedMean(3), "TrimmedMean(f=2)"),
    "clipped": (aggregation.ClipNorm(aggregation.TrimmedMean(3)), "TrimmedMean(f=2)"),
    "median": (aggregation.CoordinateMedian(), None),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("split", "how"), [(by_rows, "nan"), (by_tasks, "vanish")])
def test_rules_survive_sites_that_drop_out_in_the_middle(data, split, rule, how):
    """Three of eight from the middle on: fewer values than most of these rules are set up for."""
    aggregator, fitting = RULES[rule]

    def attack(replies, bad, rng, call):
        if call.number < 8:
            return {}
        return {s: None if how == "vanish" else {**replies[s], "gradient": np.full((N, R), np.nan)} for s in bad}

    fed = split(data)
    with fed.corrupt(attack, sites=fed.sites[:3]).begin("test") as run:
        found = byz_altgdmin(run, rank=R, n_columns=N, iterations=35, aggregator=aggregator)
    assert error(found, data) < 1e-3
    recorded = set(run.record.metric("rule")) if fitting else set()
    assert all(fitting in words and "for 5 replies" in words for words in recorded)
    assert bool(recorded) == (fitting is not None)


def test_sites_that_come_and_go_and_one_that_vanishes(data):
    """Site 2 answers nothing from call 6 on, site 5 is malicious, and all others lose some of their replies."""

    def vanishing(replies, bad, rng, call):
        return dict.fromkeys(bad) if call.number >= 6 else {}

    faults = fs.FaultPlan(seed=2, drop=0.05, delay=0.03, nonfinite=0.03, stale=0.03)
    for split in (by_rows, by_tasks):
        fed = split(data, policy=fs.Policy(quorum=3))
        honest = fed.with_faults(faults).corrupt(vanishing, sites=[fed.sites[2]])
        with honest.begin("test") as run:
            assert error(altgdmin(run, rank=R, n_columns=N, iterations=30), data) < 1e-5
        assert len(run.record.failures) > 60
        assert error(learn(honest.corrupt(attacks.ScaledReverse(), sites=[fed.sites[5]]), iterations=30), data) < 1e-4
        with pytest.raises(QuorumError):
            learn(split(data).with_faults(fs.FaultPlan(seed=2, drop=0.7)))


def test_a_run_that_is_killed_in_the_middle_goes_on_with_the_same_bytes(data, tmp_path):
    class Killer(fs.federation.Observer):
        def round(self, number, of):
            if number == 4:
                raise KeyboardInterrupt

    def federation(**options):
        fed = by_rows(data, **options)
        return fed.corrupt(attacks.ScaledReverse(), sites=["site-01"]).with_faults(fs.FaultPlan(seed=4, drop=0.05))

    def run(fed):
        return fed.run(byz_altgdmin, rank=None, n_columns=N, iterations=8)

    expected = run(federation())
    killed = federation(run_dir=tmp_path)
    killed.observe(Killer())
    with pytest.raises(KeyboardInterrupt):
        run(killed)
    kept = (tmp_path / "run-000" / "journal").stat().st_size
    found = run(federation(run_dir=tmp_path))
    assert (tmp_path / "run-000" / "journal").stat().st_size > kept
    assert found.basis.tobytes() == expected.basis.tobytes()
    assert found.weights == expected.weights


def test_a_call_without_any_usable_reply_stops_with_reasons(data):
    """Also where the replies, all of them useless, have different shapes."""
    fed = by_tasks(data, sites=7)
    spoilt = fed.corrupt(attacks.NonFinite(steps=["few_shot.gradient", "few_shot.coefs"]), sites=fed.sites)
    with pytest.raises(QuorumError, match="non-finite"):
        learn(spoilt)
    with pytest.raises(QuorumError, match="non-finite"):
        spoilt.run(median_coefs, U=data.basis)


MALFORMED = {
    "no gradient": lambda r: {k: v for k, v in r.items() if k != "gradient"},
    "text": lambda r: {**r, "gradient": np.full(r["gradient"].shape, "x")},
    "transposed": lambda r: {**r, "gradient": r["gradient"].T},
    "no rows": lambda r: {**r, "rows": 0},
    "half a row": lambda r: {**r, "rows": 0.5},
    "negative": lambda r: {**r, "free": -3},
    "rows are text": lambda r: {**r, "rows": "many"},
    "no moment": lambda r: {**r, "moment": None},
    "moment": lambda r: {**r, "moment": np.ones((2, 2))},
    "complex": lambda r: {**r, "gradient": r["gradient"] * 1j},
    "loss": lambda r: {**r, "loss": np.ones(3)},
    "nothing": lambda r: None,
    "nan": lambda r: {**r, "moment": r["moment"] * np.nan},
}


@pytest.mark.parametrize("what", MALFORMED)
@pytest.mark.parametrize("wire", [False, True])
def test_malformed_gradients_cost_their_site_and_never_the_run(data, what, wire):
    attack = rewriting("few_shot.gradient", MALFORMED[what])
    fed = by_tasks(data, wire=wire)
    with fed.corrupt(attack, sites=["2"]).begin("test") as run:
        found = byz_altgdmin(run, rank=R, n_columns=N, iterations=3)
    assert "2" not in found.weights
    gradients = [call for call in run.record.calls if call.step == "few_shot.gradient"]
    assert all(call.failed["2"] for call in gradients)


class NearlyMimic(attacks.Mimic):
    """Copies with a little noise, which are no longer equal."""

    def corrupted(self, seen, rng):
        copied = super().corrupted(seen, rng)
        return copied * (1 + 1e-3 * rng.standard_normal((len(seen.bad), *copied.shape[1:])))


@pytest.mark.parametrize("sites", [18, 19])
@pytest.mark.parametrize(
    "rule", [aggregation.GeometricMedian(), aggregation.MajorityMean()], ids=["median", "majority"]
)
def test_sites_that_repeat_one_honest_reply_count_once(rule, sites):
    """Seven of 18 or nine of 19 sites mimic an honest one: otherwise it alone is learned from."""
    data = make_few_shot_tasks(20, 40, 2, 6 * sites, sites, noise=0.5, seed=4)
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=1)
    bad = [fed.sites[i] for i in np.linspace(0, sites - 1, 7 + 2 * (sites - 18)).round().astype(int)]
    settings = {"rank": 2, "n_columns": 20, "iterations": 30, "aggregator": rule}
    clean = subspace_distance(fed.run(byz_altgdmin, **settings).basis, data.basis)
    with pytest.warns(UserWarning, match=f"{len(bad)} of {sites} sites repeat the gradient of another site"):
        found = fed.corrupt(attacks.Mimic(), sites=bad).run(byz_altgdmin, **settings)
    assert subspace_distance(found.basis, data.basis) < 1.6 * clean
    assert found.resilience["malicious"].tolist() == list(range(1, (sites + 1) // 2))
    assert {site for site, weight in found.weights.items() if weight == 0} >= set(bad[1:])
    assert set(found.doubtful) >= set(bad[1:])


def test_a_majority_that_nearly_repeats_one_reply_is_reported():
    """Nine of 19 sites mimic an honest one. Its gradient becomes small, and those of the others stay."""
    data = make_few_shot_tasks(20, 40, 2, 6 * 19, 19, noise=0.5, seed=4)
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=1)
    bad = fed.corrupt(NearlyMimic(), sites=list(fed.sites[:9]))
    with pytest.warns(UserWarning, match="the gradients form two groups, and 9 of 19"):
        found = bad.run(byz_altgdmin, aggregator=aggregation.MajorityMean(), rank=2, n_columns=20, iterations=30)
    assert found.doubtful == fed.sites  # a list of trusted sites would be that of the attackers


def test_no_site_is_trusted_where_the_warning_names_two_groups():
    data = make_few_shot_tasks(20, 40, 2, 6 * 19, 19, noise=0.5, seed=4)
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=1)
    model = fs.FedFewShotRegressor(2, aggregator=aggregation.MajorityMean(), iterations=30)
    with pytest.warns(UserWarning, match="the gradients form two groups"):
        model.fit(fed.corrupt(NearlyMimic(), sites=list(fed.sites[:9])))
    assert model.sites_trusted_ == ()
