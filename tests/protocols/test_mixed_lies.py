"""Mixed regression when sites send what they should not: a fit or a sentence, never an accident."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import GeometricMedian, Krum, SpectralFilter, TrimmedMean
from fedspan.attacks import Ones
from fedspan.errors import FedspanError, InputError
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression.exact import exact_round
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.count_clusters import count_clusters
from fedspan.mixed_regression.parts.refinement import Belief
from fedspan.mixed_regression.parts.target_moments import target_moments
from fedspan.mixed_regression.spectral_start import spectral_start

from .mixtures import federation, mixture

pytestmark = pytest.mark.slow

STRANGE = (1.7e308, -1e160, 0.0, 5e-324, np.zeros((3, 2, 1, 2)), np.zeros(0), "text", None, -5, 10**18, True)


def now_and_then(turn):
    """Return the attack that does so in every seventh call: if everything were attacked, few runs would come far."""
    return lambda replies, bad, rng, call: strange(replies, bad, rng, call) if call.number % 7 == turn else {}


def strange(replies, bad, rng, call):
    """Rewrite one key of every bad reply: by a strange number everywhere in it, or by something of another form."""
    written = {}
    for site in bad:
        if site not in replies:
            continue
        reply = dict(replies[site])
        key, value = sorted(reply)[rng.integers(len(reply))], STRANGE[rng.integers(len(STRANGE))]
        number = isinstance(value, float) and isinstance(reply[key], np.ndarray)
        reply[key] = np.full(reply[key].shape, value) if number else value
        written[site] = reply
    return written


FITS = {
    "moment descent": {},
    "perturbed": {"perturbation": 0.2},
    "spectral": {"start": "spectral"},
    "exact": {"start": "spectral", "update": "exact"},
    "soft": {"start": "spectral", "assignment": "soft"},
    "soft, exact": {"start": "spectral", "assignment": "soft", "update": "exact"},
    "random": {"start": "random", "n_starts": 2},
    "auto": {"start": "spectral", "n_clusters": "auto", "max_clusters": 4},
    "classes": {"start": "random", "n_starts": 2, "loss": "logistic"},
}


@pytest.mark.parametrize("name", FITS)
def test_strange_replies_end_in_a_fit_or_in_a_sentence(name):
    made = mixture(0, sizes=(6,) * 14, k=2, d=3)
    y = (made[1] > np.median(made[1])).astype(float) if name == "classes" else made[1]
    for turn in range(4):
        fed = fs.federate(made[0], y, sites=made[2], seed=turn)
        fed = fed.corrupt(now_and_then(turn), sites=["0000", "0004", "0007"])
        options = {"n_clusters": 2, "max_rounds": 3, **FITS[name]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers may overflow, and clusters may well be missed
            try:
                model = fs.FedMixedRegressor(**options).fit(fed)
            except FedspanError:
                continue
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.proba_).all()


@pytest.mark.parametrize("name", [name for name in FITS if name != "auto"])
def test_with_an_aggregator_few_strange_sites_do_not_stop_a_fit(name):
    made = mixture(0, sizes=(6,) * 24, k=2, d=3)
    y = (made[1] > np.median(made[1])).astype(float) if name == "classes" else made[1]
    fed = fs.federate(made[0], y, sites=made[2], seed=1).corrupt(strange, sites=["0000", "0004", "0007"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        options = {"n_clusters": 2, "max_rounds": 10, "aggregator": SpectralFilter(), **FITS[name]}
        model = fs.FedMixedRegressor(**options).fit(fed)
    assert model.run_.failures
    if name in ("moment descent", "spectral", "exact"):
        good = [i for i, site in enumerate(model.sites_) if site not in ("0000", "0004", "0007")]
        truth = [made[3][int(model.sites_[i])] for i in good]
        assert matched_share(model.labels_[good], truth) > 0.9


def only(key, value, step=""):
    """Return the attack that sends one value for one key."""

    def attack(replies, bad, rng, call):
        there = {site: dict(replies[site]) for site in bad if site in replies and key in replies[site]}
        return {site: {**reply, key: value} for site, reply in there.items()} if step in call.step else {}

    return attack


def test_absurd_sums_are_told():
    made = mixture(1)
    theta = np.zeros(5)
    for key, value, run in (
        ("coordinates", np.full(2, 1e160), lambda fed: spectral_start(fed, n_clusters=2, n_columns=5)),
        ("halves", np.full((2, 5), 1e160), lambda fed: count_clusters(fed, start=theta)),
        ("squares", 1e308, target_moments),
        ("loss", 1e308, lambda fed: fedx(fed, models=made[4], update="exact")),
        ("sums", np.full((2, 8), 1e160), lambda fed: fedx(fed, models=made[4])),
    ):
        with pytest.raises(InputError, match=r"beyond 1e\+100: .* use an aggregator"):
            run(federation(made).corrupt(only(key, value), sites=["0003"]))


def test_normal_equations_of_another_size_leave_a_cluster_of_one_site_where_it_is():
    made = mixture(2, sizes=(8,) * 13, k=2)
    X, y = made[0], made[0] @ made[4][0]
    y[:8] = X[:8] @ made[4][1]  # the second cluster has one site
    fed = fs.federate(X, y, sites=made[2])
    near = made[4] + 0.01
    for value in (np.zeros(3), np.zeros((5, 5)), 1.0):
        attacked = fed.corrupt(only("gram", value), sites=["0000"])
        for options in ({}, {"aggregator": GeometricMedian()}):
            found = exact_round(attacked, models=near, belief=Belief(np.full(2, 0.5)), **options)
            np.testing.assert_array_equal(found.change[1], 0.0)
            assert np.linalg.norm(found.change[0]) > 0.0


def test_a_rule_that_refuses_a_small_cluster_leaves_its_model_in_exact_rounds_too():
    made = mixture(2, sizes=(8,) * 13, k=2)
    X, y = made[0], made[0] @ made[4][0]
    y[:8] = X[:8] @ made[4][1]
    fed, near = fs.federate(X, y, sites=made[2]), made[4] + 0.01
    for update in ("exact", "fedavg"):
        found = fedx(fed, models=near, update=update, aggregator=Krum(2), max_rounds=3)
        np.testing.assert_array_equal(found.models[1], near[1])
        assert found.refused == (1,)
    with pytest.raises(InputError, match="f=9 is too many"):
        fedx(fed, models=near, update="exact", aggregator=TrimmedMean(9), max_rounds=3)


# Lies that are well formed.


def flipped(made, bad):
    y = made[1].copy()
    y[np.isin(made[2], bad)] *= -1
    return fs.federate(made[0], y, sites=made[2])


@pytest.mark.parametrize("part", [0.1, 0.2])
@pytest.mark.parametrize("start", ["moment_descent", "spectral"])
def test_sites_with_flipped_targets(start, part):
    """They follow the protocol: the models are those of the others, and they do not fit any of them."""
    made = mixture(3, sizes=(10,) * 100, k=2, d=8)
    bad = [f"{i:04d}" for i in range(int(part * 100))]
    model = fs.FedMixedRegressor(2, start=start, aggregator=SpectralFilter(), max_rounds=60, tol=1e-3)
    model.fit(flipped(made, bad))
    assert bottleneck_distance(model.coef_, made[4]) < 0.15
    good = np.arange(len(bad), 100)
    assert matched_share(model.labels_[good], made[3][good]) > 0.98


@pytest.mark.parametrize("key", ["product", "change", "losses", "n", "coordinates"])
@pytest.mark.parametrize("find", [moment_descent, spectral_start])
def test_a_fifth_of_the_sites_lies_in_one_thing_of_phase_one(find, key):
    """All of them together, in the moments alone, or in what anchors send, in the votes, in their sizes."""
    made = mixture(4, sizes=(10,) * 80, k=2, d=8)

    def together(replies, bad, rng, call):
        written = {}
        for site in bad:
            if site in replies and key in replies[site]:
                honest = replies[site][key]
                typical = np.median([np.linalg.norm(reply[key]) for reply in replies.values()])
                lie = 10**6 if key == "n" else np.full(honest.shape, 3 * typical / np.sqrt(honest.size))
                if key == "losses":
                    lie = np.where(np.arange(honest.size) == 0, 0.0, 100 * typical)  # all for the first candidate
                written[site] = {**replies[site], key: lie}
        return written

    fed = federation(made).corrupt(together, sites=[f"{i:04d}" for i in range(16)])
    found = fed.run(find, n_clusters=2, n_columns=8, aggregator=SpectralFilter())
    assert bottleneck_distance(found.models, made[4]) < 0.5


def test_liars_do_not_become_anchors_by_saying_that_nothing_fits_them():
    """All that three sites of ten send is huge: sites that no model fits are wanted as anchors, but not they."""
    made = mixture(5, sizes=(10,) * 90, k=2, d=6)
    fed = federation(made).corrupt(Ones(1e300), sites=[f"{i:04d}" for i in range(27)])
    with fed.begin("huge") as run:
        found = moment_descent(run, n_clusters=2, n_columns=6, aggregator=SpectralFilter())
    assert len(run.record.metric("anchors")) > 1  # more of them were taken, because liars say that none fits
    assert bottleneck_distance(found.models, made[4]) < 0.5
