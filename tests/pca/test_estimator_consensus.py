"""FedPCA by ADMM: the solvers "fedpe" and "fedpg" and their parameters."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.errors import InputError
from fedspan.federation import EndingKind

from .tables_of_low_rank import low_rank, sine

both = pytest.mark.parametrize("solver", ["fedpe", "fedpg"])


def gap(model, exact, X):
    """Return the excess of the rows outside the components over the least possible, as a share of the variance."""
    outside = [np.sum((X - m.inverse_transform(m.transform(X))) ** 2) for m in (model, exact)]
    return (outside[0] - outside[1]) / np.sum((X - X.mean(axis=0)) ** 2)


@both
def test_it_is_scikit_learn_to_tol(solver):
    X, labels = low_rank()
    ours = fs.FedPCA(3, solver=solver, tol=1e-8, random_state=0).fit(X, sites=labels)
    theirs = PCA(3, svd_solver="full").fit(X)
    assert ours.solver_ == solver
    assert ours.run_.stopped.kind is EndingKind.CONVERGED
    assert sine(ours.components_, theirs.components_) < 1e-6
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-9, err_msg=name)
    assert ours.sites_trusted_ == ours.sites_
    np.testing.assert_allclose(ours.site_weights_, 1 / 8)


@both
@pytest.mark.parametrize("variant", ["corrected", "paper"])
def test_components_are_orthonormal_whatever_the_variant(solver, variant):
    X, labels = low_rank(1)
    model = fs.FedPCA(3, solver=solver, variant=variant, max_rounds=5, random_state=0).fit(X, sites=labels)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-12)
    assert np.all(np.diff(model.explained_variance_) <= 0)


def test_parameters_reach_the_protocol():
    X, labels = low_rank(2)

    def rounds(**parameters):
        return fs.FedPCA(2, solver="fedpg", random_state=0, **parameters).fit(X, sites=labels).run_

    unit = rounds(max_rounds=1).metric("rho_unit")[0]
    assert rounds(max_rounds=1).metric("rho") == pytest.approx([0.35 * unit])
    assert rounds(max_rounds=1, rho=3.0).metric("rho") == pytest.approx([3.0 * unit])
    assert rounds(max_rounds=1, variant="paper").metric("rho") == pytest.approx([8 / 300])
    assert len(rounds(max_rounds=7, tol=1e-12).metric("loss")) == 7
    assert len(rounds(tol=1e-2).metric("loss")) < len(rounds(tol=1e-5).metric("loss"))
    visits = [call for call in rounds(max_rounds=3, participation=0.25).calls if call.step == "pca.fedpg_update"]
    assert [len(call.asked) for call in visits] == [2, 2, 2]
    fewer, more = (rounds(max_rounds=4, local_steps=steps, tol=1e-12).metric("loss")[-1] for steps in (1, 20))
    assert more < fewer


def test_defaults_of_rounds_and_tol_are_the_solvers_own():
    X, labels = low_rank(3)
    iterated = fs.FedPCA(2, solver="subspace_iteration", oversampling=0).fit(X, sites=labels)
    assert 1e-10 < iterated.run_.metric("residual")[-1] <= 1e-8
    agreed = fs.FedPCA(2, solver="fedpg", random_state=0).fit(X, sites=labels)
    assert 1e-6 < agreed.run_.metric("consensus")[-1] <= 1e-4
    endless = {"tol": 1e-300, "random_state": 0}
    iterated = fs.FedPCA(2, solver="subspace_iteration", oversampling=0, **endless).fit(X[:40], sites=labels[:40] % 2)
    assert iterated.run_.metric("residual")[200:] == []
    agreed = fs.FedPCA(2, solver="fedpg", **endless).fit(X[:40], sites=labels[:40] % 2)
    assert len(agreed.run_.metric("loss")) == 500


@both
def test_all_components_and_scaled_columns(solver):
    X, labels = low_rank(4)
    X = X * np.logspace(-2, 2, 12)
    ours = fs.FedPCA(solver=solver, scale=True, random_state=0, max_rounds=20).fit(X, sites=labels)
    assert ours.components_.shape == (12, 12)
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1.0)


@both
def test_attacked_and_with_faults(solver):
    X, _ = low_rank(5)
    sites = np.arange(300) % 9
    exact = PCA(3).fit(X)
    fed = fs.federate(X, sites=sites, policy=fs.Policy(quorum=1)).with_faults(fs.FaultPlan(seed=1, drop=0.15))
    model = fs.FedPCA(3, solver=solver, participation=0.5, max_rounds=80, random_state=0).fit(fed)
    assert model.run_.failures
    # the calls before and after the rounds lose replies as well: means and variances are of those that answered
    assert gap(model, exact, X) < 0.01
    attacked = fs.federate(X, sites=sites).corrupt(attacks.ScaledReverse(10.0), sites=["0", "1"])
    median = aggregation.GeometricMedian()
    model = fs.FedPCA(3, solver=solver, aggregator=median, max_rounds=30, random_state=0).fit(attacked)
    assert gap(model, exact, X) < 0.02
    assert not {"0", "1"} & set(model.sites_trusted_)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"variant": "as written"}, "variant='as written' must be one of 'corrected', 'paper'"),
        ({"rho": -1}, "rho=-1 must be a finite number above 0, or None"),
        ({"rho": True}, "rho=True"),
        ({"local_steps": 0}, "local_steps=0 must be a whole number between 1 and 10000"),
        ({"local_steps": 2.5}, "local_steps=2.5"),
        ({"participation": 0}, "participation=0 must be a finite number above 0 and at most 1"),
        ({"participation": "half"}, "participation='half'"),
        ({"max_rounds": 2.5}, "max_rounds=2.5"),
        ({"tol": "small"}, "tol='small'"),
        ({"n_components": 0.9}, "which solver='fedpg' cannot know"),
    ],
)
def test_invalid_parameters_are_refused_before_any_request(parameters, reason):
    X, labels = low_rank()
    fed = fs.federate(X, sites=labels)
    with pytest.raises(InputError, match=reason):
        fs.FedPCA(**{"n_components": 2, "solver": "fedpg", **parameters}).fit(fed)


@both
def test_saved_and_resumed(solver, tmp_path):
    X, labels = low_rank(6)

    def fit():
        fed = fs.federate(X, sites=labels, seed=3, run_dir=tmp_path / "run")
        return fs.FedPCA(2, solver=solver, participation=0.5, max_rounds=12, rho=0.5).fit(fed)

    first = fit()
    first.save(tmp_path / "model")
    loaded = fs.load(tmp_path / "model")
    assert loaded.get_params() == first.get_params()
    np.testing.assert_array_equal(loaded.transform(X), first.transform(X))
    journal = tmp_path / "run" / "run-000" / "journal"
    journal.write_bytes(journal.read_bytes()[:-3000])
    np.testing.assert_array_equal(fit().components_, first.components_)


def _of_one_large_site(rng, rows, factor):
    """Ten alike sites, and one with another direction that is much stronger."""
    small = [rng.normal(size=(60, 6)) * np.linspace(2, 0.5, 6) for _ in range(10)]
    large = rng.normal(size=(rows, 6)) * np.linspace(2, 0.5, 6)
    large[:, 4] *= factor
    sites = [fs.Site(f"s{i}", X) for i, X in enumerate(small)]
    return fs.LocalFederation([*sites, fs.Site("large", large)]), np.vstack(small), large


def _gap(model, X):
    """Return how much less variance the components keep than the best would."""
    C = X.T @ X / len(X)
    k = len(model.components_)
    return np.linalg.eigvalsh(C)[-k:].sum() - np.trace(model.components_ @ C @ model.components_.T)


def test_rho_grows_when_the_site_with_the_largest_eigenvalue_comes_late():
    fed, small, large = _of_one_large_site(np.random.default_rng(0), 60, 20.0)

    def late(replies, bad, rng, call):
        return {site: None if call.number < 6 else replies[site] for site in bad}

    model = fs.FedPCA(2, solver="fedpg", center=False, random_state=0).fit(fed.corrupt(late, sites=["large"]))
    first, last = model.run_.metric("rho")
    assert last > 20 * first
    assert model.run_.stopped.kind is EndingKind.CONVERGED
    assert _gap(model, np.vstack([small, large])) < 1e-2


def test_rho_shrinks_when_the_largest_site_leaves_for_good():
    fed, small, _ = _of_one_large_site(np.random.default_rng(1), 20_000, 1.5)

    def gone(replies, bad, rng, call):
        return {site: None if call.number >= 6 else replies[site] for site in bad}

    model = fs.FedPCA(2, solver="fedpg", center=False, random_state=0).fit(fed.corrupt(gone, sites=["large"]))
    first, last = model.run_.metric("rho")
    assert last < first / 20
    assert _gap(model, small) < 1e-3
    assert model.run_.metric("loss")[-1] == pytest.approx(
        np.mean(np.sum(small**2, axis=1)) - np.linalg.eigvalsh(small.T @ small / len(small))[-2:].sum(), rel=1e-3
    )


def test_lost_replies_cost_rounds_and_not_the_run():
    X = np.random.default_rng(2).normal(size=(500, 6)) * np.linspace(3, 0.3, 6)
    fed = fs.federate(X, sites=np.arange(500) % 5)

    def lose(replies, bad, rng, call):
        lost = rng.random() < 0.3 and call.step == "pca.fedpg_update"
        return {site: None if lost else replies[site] for site in bad}

    model = fs.FedPCA(2, solver="fedpg", center=False).fit(fed.corrupt(lose, sites=["0", "1", "2"]))
    assert any(len(call.failed) == 3 for call in model.run_.calls)  # below the quorum of three
    assert _gap(model, X) < 1e-3


@pytest.mark.parametrize("solver", ["fedpe", "fedpg", "subspace_iteration"])
def test_a_solver_that_does_not_converge_warns(solver):
    X = np.random.default_rng(3).normal(size=(60, 6))
    with pytest.warns(ConvergenceWarning, match="all 2 rounds done"):
        fs.FedPCA(2, solver=solver, max_rounds=2, oversampling=0).fit(X, sites=np.arange(60) % 3)


@pytest.mark.parametrize(("n", "d", "sites"), [(300, 40, 4), (60, 30, 3), (300, 40, 10)])
def test_the_default_rho_settles_on_small_sites(n, d, sites):
    """Their own eigenvalues are far above those of all rows: with 0.35 they never agree."""
    X = np.random.default_rng(1).normal(size=(n, d)) * np.linspace(3.0, 0.5, d)
    model = fs.FedPCA(3, solver="fedpg", random_state=0).fit(X, sites=np.arange(n) % sites)
    assert model.run_.stopped.kind is EndingKind.CONVERGED
    assert gap(model, PCA(3).fit(X), X) < 1e-4


def test_sites_that_do_not_agree_need_a_larger_rho():
    X = np.random.default_rng(1).normal(size=(300, 40))
    with pytest.warns(ConvergenceWarning, match="the sites do not agree .*try a larger rho"):
        fs.FedPCA(3, solver="fedpg", rho=0.1, max_rounds=50).fit(X, sites=np.arange(300) % 4)
