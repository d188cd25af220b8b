"""The subspace median: a minority of malicious sites, malformed replies, and the rank that most sites share."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.datasets import make_subspace_sites
from fedspan.errors import QuorumError
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
