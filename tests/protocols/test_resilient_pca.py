"""Principal subspaces when some sites lie."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.datasets import make_subspace_sites
from fedspan.errors import InputError, QuorumError
from fedspan.linalg import subspace_distance
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.subspace_median import leading_eigenvectors, subspace_median
from fedspan.sums.moments import moments

RESILIENT = ("subspace_median", "median_of_means", "resilient_power", "resilient_covariance")
N, R, SITES = 40, 3, 10


@pytest.fixture(scope="module")
def data():
    return make_subspace_sites(N, R, SITES, 60, tail=0.015, seed=5)


@pytest.fixture
def fed(data):
    return fs.federate(data.X, sites=data.sites, seed=2)


def honest_error(data):
    """Return the median error of an honest site alone: the unit in which resilience is measured."""
    sites = fs.federate(data.X, sites=data.sites)
    alone = [sites.subset([name]).run(subspace_median, rank=R).basis for name in sites.sites]
    return float(np.median([subspace_distance(basis, data.basis) for basis in alone]))


def test_local_basis_is_the_leading_eigenspace_either_way():
    rng = np.random.default_rng(0)
    for q, d in ((50, 8), (6, 30), (8, 8)):
        X = rng.normal(size=(q, d)) * np.linspace(3, 1, d)
        U = leading_eigenvectors(fs.Site("s", X), 3)
        np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-12)
        assert subspace_distance(U, np.linalg.svd(X)[2][:3].T) < 1e-10


def test_a_site_with_too_few_rows_fails_and_the_run_goes_on(data):
    sites = [fs.Site(name, data.X[data.sites == name]) for name in np.unique(data.sites)]
    fed = fs.LocalFederation([*sites, fs.Site("tiny", data.X[:2])])
    with fed.begin("test") as run:
        found = subspace_median(run, rank=R)
    assert "tiny" not in found.sites
    assert "needs at least 3" in run.record.calls[0].failed["tiny"]


@pytest.mark.parametrize("output", ["eigenspace", "node", "trimmed"])
def test_subspace_median_shrugs_off_a_minority(fed, data, output):
    clean = subspace_distance(fed.run(subspace_median, rank=R, output=output).basis, data.basis)
    unit = honest_error(data)
    bad = list(fed.sites[:3])
    for attack in (attacks.Orthogonal(3.0), attacks.RandomNoise(100.0), attacks.ScaledReverse(10.0), attacks.Mimic()):
        found = fed.corrupt(attack, sites=bad).run(subspace_median, rank=R, output=output)
        assert subspace_distance(found.basis, data.basis) < clean + 0.5 * unit
        if not isinstance(attack, attacks.Mimic | attacks.ScaledReverse):  # these send an honest span
            honest = set(fed.sites[3:])
            assert set(found.trusted) == honest if output != "node" else len(found.trusted) == 1
            assert set(found.trusted) <= honest
            assert found.weights[:3].sum() < 0.3


def test_colluding_bases_that_agree_with_each_other(fed, data):
    """Four of ten send one and the same wrong subspace; the unit is an honest site's error."""
    wrong = np.linalg.qr(np.random.default_rng(1).normal(size=(N, R)))[0]

    def collude(replies, bad, rng, call):
        return {site: {"basis": wrong} for site in bad}

    for output, most in (("eigenspace", 1.0), ("trimmed", 1.0), ("node", 1.6)):
        found = fed.corrupt(collude, sites=fed.sites[::3]).run(subspace_median, rank=R, output=output)
        assert subspace_distance(found.basis, data.basis) < most * honest_error(data)
        honest = set(fed.sites) - set(fed.sites[::3])
        assert set(found.trusted) == honest if output != "node" else set(found.trusted) < honest


MALFORMED = {
    "nan": lambda r: {"basis": np.full((N, R), np.nan)},
    "inf": lambda r: {"basis": np.full((N, R), np.inf)},
    "zeros": lambda r: {"basis": np.zeros((N, R))},
    "rank one": lambda r: {"basis": np.ones((N, R))},
    "repeated column": lambda r: {"basis": r["basis"][:, [0, 0, 1]]},
    "wide": lambda r: {"basis": r["basis"].T},
    "row missing": lambda r: {"basis": r["basis"][:-1]},
    "column missing": lambda r: {"basis": r["basis"][:, :-1]},
    "extra axis": lambda r: {"basis": r["basis"][None]},
    "vector": lambda r: {"basis": r["basis"].ravel()},
    "scalar": lambda r: {"basis": 1.0},
    "none": lambda r: {"basis": None},
    "text": lambda r: {"basis": np.full((N, R), "x")},
    "complex": lambda r: {"basis": r["basis"] * 1j},
    "bool": lambda r: {"basis": r["basis"] > 0},
    "empty": lambda r: {"basis": np.zeros((0, 0))},
    "no key": lambda r: {},
    "other key": lambda r: {"U": r["basis"]},
    "list": lambda r: {"basis": r["basis"].tolist()},
    "object": lambda r: {"basis": object()},
    "nothing": lambda r: None,
    "huge": lambda r: {"basis": r["basis"] * 1e300},
    "tiny": lambda r: {"basis": r["basis"] * 1e-300},
    "float16": lambda r: {"basis": r["basis"].astype(np.float16)},
}
HARMLESS = {"huge", "tiny", "float16"}  # spans all the same


@pytest.mark.parametrize("what", sorted(MALFORMED))
def test_malformed_replies_cost_their_site_and_never_the_run(fed, data, what):
    def attack(replies, bad, rng, call):
        return {site: MALFORMED[what](replies[site]) for site in bad}

    spoilt = fed.corrupt(attack, sites=["site-02"])
    with spoilt.begin("test") as run:
        found = subspace_median(run, rank=R)
    without = fed.subset([name for name in fed.sites if name != "site-02"]).run(subspace_median, rank=R)
    if what in HARMLESS:
        assert "site-02" in found.sites
    else:
        assert "site-02" not in found.sites
        assert run.record.calls[0].failed["site-02"]
        np.testing.assert_array_equal(found.basis, without.basis)


@pytest.mark.parametrize("names", [np.array(5.0), np.zeros((2, 2)), "x", 3, np.array(["a"])], ids=repr)
@pytest.mark.parametrize("wire", [False, True])
def test_a_strange_answer_about_columns_costs_its_site_and_never_the_run(data, wire, names):
    def attack(replies, bad, rng, call):
        return {site: {**replies[site], "names": names} for site in bad} if "columns" in call.step else {}

    fed = fs.federate(data.X, sites=data.sites, wire=wire).corrupt(attack, sites=["site-02"])
    for model in (fs.FedPCA(R, solver="subspace_median"), fs.FedPCA(R), fs.FedStandardScaler()):
        assert len(model.fit(fed).sites_) >= SITES - 1


PRODUCTS = {
    "text": lambda r: {**r, "product": np.full(r["product"].shape, "x")},
    "none": lambda r: {**r, "product": None},
    "short": lambda r: {**r, "product": r["product"][:-1]},
    "wide": lambda r: {**r, "product": r["product"].T},
    "zeros": lambda r: {**r, "product": np.zeros_like(r["product"])},
    "no key": lambda r: {"n": r["n"]},
    "nothing": lambda r: None,
    "nan": lambda r: {**r, "product": r["product"] * np.nan},
}


@pytest.mark.parametrize("what", sorted(PRODUCTS))
@pytest.mark.parametrize("bad", [["site-00"], ["site-00", "site-01"]], ids=len)
def test_malformed_replies_cost_median_of_means_no_more_than_their_groups(data, what, bad):
    def attack(replies, bad, rng, call):
        return {site: PRODUCTS[what](replies[site]) for site in bad} if "product" in call.step else {}

    for n_sites, groups in ((SITES, 5), (3, 3)):
        rows = data.sites < f"site-{n_sites:02d}"
        fed = fs.federate(data.X[rows], sites=data.sites[rows]).corrupt(attack, sites=bad[: 1 if n_sites == 3 else 2])
        model = fs.FedPCA(R, solver="median_of_means", groups=groups, center=False, random_state=0).fit(fed)
        assert subspace_distance(model.components_.T, data.basis) < 1.5 * honest_error(data)
        if what != "zeros" or len(bad) == 1:
            assert not set(bad[:1]) & set(model.sites_trusted_) or what == "zeros"


@pytest.mark.parametrize("solver", ["resilient_covariance", "resilient_power", "subspace_median"])
def test_the_largest_finite_numbers_are_only_lies(data, solver):
    fed = fs.federate(data.X, sites=data.sites).corrupt(attacks.Ones(1.7e308), sites=["site-00"])
    model = fs.FedPCA(R, solver=solver, random_state=0).fit(fed)
    assert "site-00" not in model.sites_trusted_
    assert np.isfinite(model.components_).all()


def test_a_reply_short_of_a_row_is_known_to_be_wrong_even_in_a_tie(data):
    sites = [fs.Site(name, data.X[data.sites == name]) for name in ("site-00", "site-01")]

    def attack(replies, bad, rng, call):
        return {s: {"basis": replies[s]["basis"][:-1]} for s in bad} if "basis" in call.step else {}

    fed = fs.LocalFederation(sites, policy=fs.Policy(quorum=1)).corrupt(attack, sites=["site-01"])
    model = fs.FedPCA(R, solver="subspace_median").fit(fed)
    assert model.sites_trusted_ == ("site-00",)


def test_sites_that_agree_to_the_last_digit_are_all_trusted(data):
    X = data.X[:60]
    model = fs.FedPCA(R, solver="subspace_median").fit(fs.LocalFederation([fs.Site(name, X) for name in "abcde"]))
    assert model.sites_trusted_ == tuple("abcde")


def test_whom_an_aggregator_trusted_is_told_for_every_solver(data):
    fed = fs.federate(data.X, sites=data.sites).corrupt(attacks.Orthogonal(1e4), sites=["site-01", "site-05"])
    for solver in ("covariance", "subspace_iteration", "power", "resilient_power", "resilient_covariance"):
        model = fs.FedPCA(R, solver=solver, aggregator=aggregation.Krum(f=2), center=False, max_rounds=5).fit(fed)
        assert model.sites_trusted_
        assert not {"site-01", "site-05"} & set(model.sites_trusted_)
        assert model.site_weights_[[1, 5]].sum() == 0.0


@pytest.mark.parametrize("bad", ["GeometricMedian", aggregation.GeometricMedian, 3])
def test_what_is_no_aggregator_is_refused_before_any_site_is_asked(bad):
    for kind in (fs.FedPCA, fs.FedStandardScaler):
        with pytest.raises(InputError, match="aggregator="):
            kind(aggregator=bad).fit(np.eye(5))


def test_a_plain_function_is_an_aggregator():
    def middle(values, weights=None):
        assert weights is None
        return aggregation.Aggregate(np.median(values, axis=0), np.full(len(values), 1 / len(values)))

    X = np.random.default_rng(0).normal(size=(90, 3)) + 5
    scaler = fs.FedStandardScaler(aggregator=middle).fit(X, sites=np.arange(90) % 9)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=0.3)


@pytest.mark.parametrize("n", [30, 50, 100])
def test_the_chosen_rank_is_not_fooled_by_chance(n):
    """Where what sites send is a good part of all directions, unrelated ones coincide by chance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, n)) * np.r_[[5.0] * 3, [0.5] * (n - 3)]
    fed = fs.federate(X, sites=np.arange(900) % 9)
    assert fs.FedPCA("auto", solver="subspace_median").fit(fed).n_components_ == 3
    if n == 100:
        liars = fed.corrupt(attacks.Orthogonal(), sites=["0", "1", "2"])
        assert fs.FedPCA("auto", solver="subspace_median").fit(liars).n_components_ == 3


def test_most_replies_malformed_ends_the_run_with_reasons(fed):
    def attack(replies, bad, rng, call):
        return {site: {"basis": np.ones((N, R))} for site in bad}

    with pytest.raises(QuorumError, match="linearly independent"):
        fed.corrupt(attack, sites=fed.sites[:6]).run(subspace_median, rank=R)


def test_the_paper_completes_rank_deficient_replies(fed, data):
    spoilt = fed.corrupt(attacks.Ones(), sites=["site-02"])
    completed = spoilt.run(subspace_median, rank=R, complete=True)
    assert "site-02" in completed.sites
    assert "site-02" not in completed.trusted
    assert subspace_distance(completed.basis, data.basis) < honest_error(data)
    assert "site-02" not in spoilt.run(subspace_median, rank=R).sites  # by default it is refused


def test_rank_is_chosen_by_what_most_sites_share(fed, data):
    found = fed.corrupt(attacks.RandomNoise(1.0), sites=fed.sites[:3]).run(subspace_median, rank=8, choose=True)
    assert found.basis.shape == (N, R + 1)  # three spikes of 15 and one direction of 1 above a tail of 0.015
    model = fs.FedPCA("auto", solver="subspace_median", center=False, max_components=8).fit(fed)
    assert model.n_components_ == R + 1
    assert model.explained_variance_[R] == pytest.approx(1.0, rel=0.3)


def test_power_methods_without_attack_find_the_pooled_subspace(fed, data):
    exact = fed.run(covariance_pca, rank=R)[0].components.T
    assert subspace_distance(fed.run(power, rank=R, n_columns=N, iterations=12)[0], exact) < 1e-8
    mean = fed.run(resilient_power, rank=R, n_columns=N, iterations=12, aggregator=aggregation.Mean())[0]
    assert subspace_distance(mean, exact) < 1e-8
    covariance = fed.run(resilient_covariance, rank=R, aggregator=aggregation.Mean())[0]
    assert subspace_distance(covariance.components.T, exact) < 1e-10
    one_group = fed.run(median_of_means, rank=R, n_columns=N, groups=1, iterations=12).basis
    assert subspace_distance(one_group, exact) < 1e-8


def test_resilient_covariance_is_the_frobenius_median(fed):
    """Against the geometric median of the whole matrices."""
    axes, weights = fed.run(resilient_covariance, rank=R)

    @fs.step
    def whole(site):
        return {"phi": site.X.T @ site.X / len(site)}

    phi = fed.ask(whole).stack("phi")
    median = aggregation.GeometricMedian()(phi)
    np.testing.assert_allclose(list(weights.values()), median.weights, rtol=1e-6)
    assert subspace_distance(axes.components.T, np.linalg.eigh(median.value)[1][:, -R:]) < 1e-8


def test_median_of_means_survives_bad_groups_and_refuses_impossible_ones(fed, data):
    attacked = fed.corrupt(attacks.Orthogonal(30.0), sites=["site-00", "site-09"])
    found = attacked.run(median_of_means, rank=R, n_columns=N, groups=5)
    assert subspace_distance(found.basis, data.basis) < honest_error(data)
    assert set(found.trusted) == {f"site-{i:02d}" for i in range(2, 8)}
    assert len(found.weights) == SITES
    assert found.weights.sum() == pytest.approx(1.0)
    for groups in (0, 11):
        with pytest.raises(InputError, match=f"groups={groups}"):
            fed.run(median_of_means, rank=R, n_columns=N, groups=groups)
        with pytest.raises(InputError, match=f"groups={groups}"):
            fs.FedPCA(R, solver="median_of_means", groups=groups).fit(fed)


def test_a_site_that_is_left_out_does_not_make_the_groups_impossible(data):
    sites = [fs.Site(name, data.X[data.sites == name]) for name in np.unique(data.sites)]
    odd = fs.Site("odd", np.ones((60, 2)))
    with pytest.warns(UserWarning, match="odd"):
        model = fs.FedPCA(R, solver="median_of_means", groups=SITES + 1).fit(fs.LocalFederation([*sites, odd]))
    assert model.components_.shape == (R, N)


def test_moments_cannot_be_moved(fed, data):
    clean = fed.run(moments, aggregator=aggregation.CoordinateMedian())
    exact_mean, exact_variance = data.X.mean(axis=0), data.X.var(axis=0)
    deviation = np.sqrt(exact_variance / 60)
    assert np.all(np.abs(clean.mean - exact_mean) < 4 * deviation)
    for attack in (attacks.Ones(1e9), attacks.ScaledReverse(1e6), attacks.ALittleIsEnough(3.0)):
        attacked = fed.corrupt(attack, sites=fed.sites[:3]).run(moments, aggregator=aggregation.CoordinateMedian())
        assert np.all(np.abs(attacked.mean - exact_mean) < 4 * deviation)
        assert np.all(attacked.variance < 3 * exact_variance)
        assert np.all(attacked.variance > exact_variance / 3)
        assert attacked.n == len(data.X)


def test_columns_of_very_different_units_are_protected_alike():
    """A geometric median of whole vectors would let the small columns go; the coordinate-wise one does not."""
    rng = np.random.default_rng(0)
    units = np.array([1e8, 1.0, 1e-6])
    X = rng.normal(size=(900, 3)) * units
    fed = fs.federate(X, sites=np.arange(900) % 9)

    def attack(replies, bad, rng, call):
        return {
            site: {key: v + np.array([0.0, 50.0, 50e-6]) if np.ndim(v) else v for key, v in replies[site].items()}
            for site in bad
        }

    scaler = fs.FedStandardScaler(aggregator=aggregation.CoordinateMedian()).fit(
        fed.corrupt(attack, sites=["1", "5", "7"])
    )
    np.testing.assert_allclose(scaler.mean_ / units, 0.0, atol=0.3)
    np.testing.assert_allclose(scaler.scale_ / units, 1.0, atol=0.3)


@pytest.mark.parametrize("solver", RESILIENT)
@pytest.mark.parametrize("scale", [False, True])
def test_the_whole_fit_is_resilient_centre_and_scale_included(solver, scale):
    """Bad sites write everything that they send, from the first call on."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(12, 2)))[0]
    X = rng.normal(size=(600, 2)) * [6.0, 4.0] @ axes.T + 0.3 * rng.normal(size=(600, 12)) + 50.0
    labels = np.arange(600) % 12
    clean = fs.FedPCA(2, scale=scale).fit(X, sites=labels)
    for attack in (attacks.Ones(1e6), attacks.ScaledReverse(100.0), attacks.RandomNoise(1e4), attacks.NonFinite()):
        fed = fs.federate(X, sites=labels).corrupt(attack, sites=["0", "3", "7"])
        model = fs.FedPCA(2, solver=solver, scale=scale, groups=12, random_state=0).fit(fed)
        if solver == "subspace_median":
            assert subspace_distance(model.components_.T, clean.components_.T) < 0.15
            assert not {"0", "3", "7"} & set(model.sites_trusted_) or isinstance(attack, attacks.ScaledReverse)
        np.testing.assert_allclose(model.mean_, clean.mean_, atol=1.5)
        assert model.site_weights_.shape == (12,)
        np.testing.assert_allclose(model.explained_variance_[0], clean.explained_variance_[0], rtol=0.6)
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-10)


@pytest.mark.parametrize("solver", ["covariance", "subspace_iteration", "power"])
def test_exact_solvers_take_an_aggregator(solver):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(500, 6)) * [5, 4, 0.5, 0.5, 0.5, 0.5]
    labels = np.arange(500) % 10
    exact = fs.FedPCA(2).fit(X, sites=labels)
    by_mean = fs.FedPCA(2, solver=solver, aggregator=aggregation.Mean(), iterations=30).fit(X, sites=labels)
    assert subspace_distance(by_mean.components_.T, exact.components_.T) < 1e-6
    np.testing.assert_allclose(by_mean.explained_variance_, exact.explained_variance_, rtol=1e-6)
    bad = fs.federate(X, sites=labels).corrupt(attacks.Ones(1e5), sites=["2", "3"])
    resilient = fs.FedPCA(2, solver=solver, aggregator=aggregation.TrimmedMean(2)).fit(bad)
    assert subspace_distance(resilient.components_.T, exact.components_.T) < 0.3
    spoilt = fs.FedPCA(2, solver=solver).fit(bad)
    assert subspace_distance(spoilt.components_.T, exact.components_.T) > 0.5


def test_what_does_not_average_takes_no_aggregator():
    with pytest.raises(InputError, match="stacks them"):
        fs.FedPCA(2, solver="stack", aggregator=aggregation.GeometricMedian()).fit(np.eye(5))
    with pytest.raises(InputError, match="n_components='auto' must be a number"):
        fs.FedPCA("auto").fit(np.eye(5))
    with pytest.raises(InputError, match="output='best'"):
        fs.FedPCA(2, output="best").fit(np.eye(5))


@pytest.mark.parametrize(
    "solver", ["subspace_median", "median_of_means", "resilient_power", "resilient_covariance", "power"]
)
def test_one_site_is_ordinary_pca(solver):
    X = np.random.default_rng(5).normal(size=(200, 6)) * [6, 4, 1, 0.5, 0.4, 0.3] + 3
    model = fs.FedPCA(2, solver=solver, iterations=30).fit(X)
    exact = fs.FedPCA(2).fit(X)
    np.testing.assert_allclose(model.components_, exact.components_, atol=1e-8)
    np.testing.assert_allclose(model.explained_variance_, exact.explained_variance_, rtol=1e-8)
    assert model.sites_trusted_ == ("site",)


def test_models_with_aggregators_are_saved(tmp_path):
    X = np.random.default_rng(6).normal(size=(60, 4))
    aggregator = aggregation.ClipNorm(aggregation.TrimmedMean(f=1), factor=3.0)
    model = fs.FedPCA(2, solver="resilient_covariance", aggregator=aggregator).fit(X, sites=np.arange(60) % 5)
    model.save(tmp_path / "m")
    assert fs.load(tmp_path / "m").aggregator == aggregator
