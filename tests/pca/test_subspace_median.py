"""The subspace median: a minority of malicious sites, malformed replies, and the rank that most sites share."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian
from fedspan.datasets import make_subspace_sites
from fedspan.errors import InputError, PolicyError, QuorumError
from fedspan.federation import FailureKind
from fedspan.linalg import subspace_distance
from fedspan.pca.subspace_median import local_basis, subspace_median

from .subspace_sites import N, R, honest_error


def test_local_basis_is_the_leading_eigenspace_either_way():
    rng = np.random.default_rng(0)
    for q, d in ((50, 8), (6, 30), (8, 8)):
        X = rng.normal(size=(q, d)) * np.linspace(3, 1, d)
        U = local_basis(fs.Site("s", X), 3)["basis"]
        np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-12)
        assert subspace_distance(U, np.linalg.svd(X)[2][:3].T) < 1e-10


def test_a_site_with_too_few_rows_fails_and_the_run_goes_on(data):
    sites = [fs.Site(name, data.X[data.sites == name]) for name in np.unique(data.sites)]
    fed = fs.LocalFederation([*sites, fs.Site("tiny", data.X[:2])])
    with fed.begin("test") as run:
        found = subspace_median(run, rank=R)
    assert "tiny" not in found.sites
    assert run.record.calls[0].failed["tiny"].kind is FailureKind.STEP_FAILED


@pytest.mark.parametrize("output", ["eigenspace", "node", "trimmed"])
def test_a_minority_of_malicious_sites_does_little_harm(fed, data, output):
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


@pytest.mark.parametrize("n", [30, 50, 100])
def test_the_chosen_rank_is_not_fooled_by_chance(n):
    """Where what sites send is a good part of all directions, unrelated ones coincide by chance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, n)) * np.r_[[5.0] * 3, [0.5] * (n - 3)]
    fed = fs.federate(X, sites=np.arange(900) % 9)
    assert fs.FedPCA("auto", solver="subspace_median").fit(fed).n_components_ == 3
    if n == 100:
        attacked = fed.corrupt(attacks.Orthogonal(), sites=["0", "1", "2"])
        assert fs.FedPCA("auto", solver="subspace_median").fit(attacked).n_components_ == 3


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


@pytest.fixture(scope="module")
def unlike():
    """Nineteen sites of few rows: an honest site's own error is large."""
    return make_subspace_sites(N, R, 19, 14, tail=0.25, seed=3)


def test_nine_of_nineteen_that_collude_are_not_trusted_and_not_followed(unlike):
    fed = fs.federate(unlike.X, sites=unlike.sites, seed=2)
    replies = fed.ask(local_basis, rank=R)
    unit = np.median([subspace_distance(reply["basis"], unlike.basis) for reply in replies.ok.values()])
    bad = fed.sites[1::2]
    attacked = fed.corrupt(attacks.Orthogonal(keys=["basis"]), sites=bad)
    with pytest.warns(UserWarning, match="the sites form two groups, and 9 of 19"):
        model = fs.FedPCA(R, solver="subspace_median", center=False).fit(attacked)
    assert subspace_distance(model.components_.T, unlike.basis) < unit
    assert set(model.sites_trusted_) <= set(fed.sites) - set(bad)
    with pytest.warns(UserWarning, match="two groups"):
        before = fs.FedPCA(R, solver="subspace_median", center=False, output="eigenspace").fit(attacked)
    assert subspace_distance(before.components_.T, unlike.basis) > 1.2 * unit  # the attackers' subspace
    assert set(before.sites_trusted_) <= set(fed.sites) - set(bad)
    assert before.resilience_["bound"][-1] > 2.0  # so little is certain then, of at most the root of 6


def test_the_table_of_resilience_is_in_model_record_and_file(fed, data, tmp_path):
    model = fs.FedPCA(R, solver="subspace_median").fit(fed)
    table = model.resilience_
    assert table["malicious"].tolist() == [1, 2, 3, 4]
    assert (np.diff(table["radius"]) <= 0.0).all()
    assert table["bound"].max() < np.sqrt(2.0) * 3.0 * honest_error(data)
    (logged,) = [entry.values for entry in model.run_.metrics if "moved_at_most" in entry.values]
    assert logged["moved_at_most"] == pytest.approx(table["bound"][-1])
    model.save(tmp_path / "model.fedspan")
    np.testing.assert_array_equal(fs.load(tmp_path / "model.fedspan").resilience_, table)
    assert fs.FedPCA(R).fit(fed).resilience_ is None


GROUPS = fs.Policy(secure_sum=True, groups=3)


def nine_sites(seed, attack=None, rows=60, d=20):
    """Sites with three leading directions, of which one site has rows of its own making; and these directions."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spread = np.r_[5.0, 4.0, 3.0, np.ones(d - 3)]
    made = [rng.normal(size=(rows, d)) * spread @ Q.T for _ in range(9)]
    bad = int(rng.integers(9))
    if attack == "orthogonal":
        made[bad] = rng.normal(size=(rows, 3)) * 30.0 @ Q[:, 3:6].T
    elif attack == "huge":
        made[bad] = rng.normal(size=(rows, 3)) * 1e6 @ Q[:, 3:6].T
    elif attack == "other":
        made[bad] = rng.normal(size=(rows, d)) * spread @ np.linalg.qr(rng.normal(size=(d, d)))[0].T
    return [fs.Site(f"s{i}", X) for i, X in enumerate(made)], Q[:, :3], f"s{bad}"


@pytest.mark.parametrize("attack", [None, "orthogonal", "huge", "other"])
def test_secure_sums_within_groups_bound_a_malicious_site(attack):
    """One malicious site of nine, in three groups: the error is at most 1.5 times that in the clear."""
    errors = []
    for seed in range(3):
        sites, truth, bad = nine_sites(seed, attack)
        for policy in (None, GROUPS):
            model = fs.FedPCA(3, solver="subspace_median").fit(fs.LocalFederation(sites, seed=seed, policy=policy))
            errors.append(subspace_distance(model.components_.T, truth))
        assert all(call.secure for call in model.run_.calls[1:])  # the first one is about the names of columns
        assert model.site_weights_.sum() == pytest.approx(1.0)
        if attack is not None:
            assert bad not in model.sites_trusted_
            assert len(model.sites_trusted_) == 6
    clear, groups = np.reshape(errors, (3, 2)).T
    ratio = float(np.max(groups / clear))
    print(f"{attack}: error in the clear {clear.mean():.3f}, in groups {groups.mean():.3f}, largest ratio {ratio:.2f}")
    assert ratio < 1.5


@pytest.mark.parametrize("attack", ["ScaledReverse", "ALittleIsEnough", "Mimic", "InnerProduct", "NonFinite"])
def test_attacks_within_groups_can_be_simulated(attack):
    errors = []
    for seed in range(3):
        sites, truth, _ = nine_sites(seed, None)
        for policy in (None, GROUPS):
            fed = fs.LocalFederation(sites, seed=seed, policy=policy).corrupt(getattr(attacks, attack)(), sites=["s4"])
            model = fs.FedPCA(3, solver="subspace_median").fit(fed)
            errors.append(subspace_distance(model.components_.T, truth))
        assert not any(call.secure for call in model.run_.calls)  # the record states that no sum was a secure one
    clear, groups = np.reshape(errors, (3, 2)).T
    ratios = groups.mean() / clear.mean(), np.max(groups / clear)
    print(f"{attack}: {clear.mean():.3f} | {groups.mean():.3f} | {ratios[0]:.2f} | {ratios[1]:.2f}")
    assert max(ratios) < 1.5
    with pytest.raises(PolicyError, match="an attack needs the replies of single sites"):
        fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True)).corrupt(attacks.Mimic(), sites=["s4"])


def test_any_aggregator_takes_the_totals_of_groups():
    sites, truth, _ = nine_sites(4, "huge")
    clear, groups = (fs.LocalFederation(sites, seed=1, policy=policy) for policy in (None, GROUPS))
    for model in (
        lambda: fs.FedPCA(3, solver="resilient_covariance"),
        lambda: fs.FedPCA(3, aggregator=GeometricMedian()),
        lambda: fs.FedPCA(3, solver="subspace_iteration", aggregator=GeometricMedian(), max_rounds=30, tol=1e-4),
    ):
        found, expected = (subspace_distance(model().fit(fed).components_.T, truth) for fed in (groups, clear))
        assert found < 1.5 * expected
    scaler = fs.FedStandardScaler(aggregator=CoordinateMedian()).fit(groups)
    plain = fs.FedStandardScaler(aggregator=CoordinateMedian()).fit(clear)
    np.testing.assert_allclose(scaler.scale_, plain.scale_, rtol=0.3)


def test_a_group_that_a_site_spoils_is_missing_and_the_run_goes_on():
    sites, truth, _ = nine_sites(5)
    sites[4] = fs.Site("s4", np.where(np.arange(60)[:, None] == 0, np.inf, sites[4].X))
    fed = fs.LocalFederation(sites, seed=2, policy=GROUPS)
    model = fs.FedPCA(3, solver="subspace_median", center=False).fit(fed)
    spoilt = next(names for names in fed.groups.values() if "s4" in names)
    assert not set(model.sites_trusted_) & set(spoilt)
    assert subspace_distance(model.components_.T, truth) < 0.2
    fed = fs.LocalFederation([fs.Site(site.name, np.full((5, 4), np.nan)) for site in sites], policy=GROUPS)
    with pytest.raises(InputError, match="of 3 groups 0 have rows and no NaN or infinity in X"):
        fs.FedPCA(3, solver="subspace_median").fit(fed)


def test_groups_have_the_fewest_sites_of_a_sum_and_stay_the_same():
    sites, _, _ = nine_sites(0)
    fed = fs.LocalFederation(sites, seed=7, policy=GROUPS)
    assert sorted(map(len, fed.groups.values())) == [3, 3, 3]
    assert sorted(name for names in fed.groups.values() for name in names) == list(fed.sites)
    assert fed.groups == fs.LocalFederation(sites, seed=7, policy=GROUPS).groups
    assert fed.groups != fs.LocalFederation(sites, seed=8, policy=GROUPS).groups
    assert fed.run(lambda run: run.groups, random_state=3) == fed.groups
    fewer = fed.subset(fed.sites[:8]).groups
    assert all(set(fewer[name]) <= set(names) for name, names in fed.groups.items())
    with pytest.raises(PolicyError, match="the sum of one of 5 groups of 9 sites over 1 site cannot be a secure one"):
        fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True, groups=5))


def test_without_groups_it_stays_refused():
    sites, _, _ = nine_sites(0)
    with pytest.raises(PolicyError, match=r"FedPCA\(solver='subspace_median'\) needs .* or groups of sites"):
        fs.FedPCA(3, solver="subspace_median").fit(fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True)))
    fed = fs.LocalFederation(sites, policy=GROUPS)
    for model in (fs.FedPCA(3, solver="fedpg"), fs.FedPCA(3, solver="median_of_means"), fs.LocalPCADetector(2)):
        with pytest.raises(PolicyError, match="needs the replies of single sites"):
            model.fit(fed)
    with pytest.raises(PolicyError, match="needs the replies of single sites"):
        fed.ask(local_basis, rank=2)
