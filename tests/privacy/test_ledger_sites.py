"""A site with a ledger in a federation: what it charges, what it refuses, and its noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.noise_query import query_digest
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.steps import find_step
from fedspan.landmarks.parts.noisy_pull import bounded_pull, local_noisy_descent, local_noisy_pull, pull_sensitivity
from fedspan.privacy import Ledger, SimulatedLedger, epsilon_of, normal
from fedspan.privacy.noisy_rows import with_noisy_rows
from fedspan.sums.moments import local_sums

GAMMA, MULTIPLIER = 0.5, 2.0
Y = np.random.default_rng(9).normal(size=(40, 5)) / 3


def rows(seed=0, n=30):
    return np.random.default_rng(seed).normal(size=(n, 5)) / 2


def ledger_at(tmp_path, name="a", epsilon=50.0, **options):
    return Ledger(tmp_path / f"{name}.ledger", epsilon=epsilon, delta=1e-5, **options)


def reply(site, Y=Y, multiplier=MULTIPLIER, step=local_noisy_pull, key="pull", **options):
    """Return what the coordinator gets from one site."""
    more = options.pop("payload", {})
    fed = fs.LocalFederation([site], **options)
    return fed.ask(step, Y=Y, gamma=GAMMA, multiplier=multiplier, **more)[site.name][key]


def noise(site, Y=Y, **options):
    """Return the noise of a reply, in units of its deviation."""
    exact = bounded_pull(site, Y, GAMMA)
    return (reply(site, Y, **options) - exact) / (MULTIPLIER * pull_sensitivity(len(Y), GAMMA))


def test_the_noise_has_the_size_that_was_promised(tmp_path):
    found = noise(fs.Site("a", rows(), ledger=ledger_at(tmp_path)))
    assert abs(found.mean()) < 5 / np.sqrt(found.size)
    assert abs(found.std() - 1) < 5 / np.sqrt(2 * found.size)


def test_a_charge_is_what_the_reply_costs(tmp_path):
    ledger = ledger_at(tmp_path)
    reply(fs.Site("a", rows(), ledger=ledger))
    (charge,) = ledger.charges
    assert charge.cost.mu2 == MULTIPLIER**-2
    assert charge.what == "landmarks.noisy_pull"
    assert ledger.spent == pytest.approx(epsilon_of(1 / MULTIPLIER, 1e-5))


def test_a_refused_query_costs_nothing(tmp_path):
    ledger = ledger_at(tmp_path)
    with pytest.raises(QuorumError, match="landmarks must be within"):
        reply(fs.Site("a", rows(), ledger=ledger), Y + 100.0)
    assert not ledger.charges


def test_each_local_step_is_charged(tmp_path):
    ledger = ledger_at(tmp_path)
    payload = {"size": 1.0, "steps": 3, "upload": "landmarks"}
    reply(fs.Site("a", rows(), ledger=ledger), step=local_noisy_descent, key="landmarks", payload=payload)
    assert ledger.cost.mu2 == pytest.approx(3 * MULTIPLIER**-2)


def test_seeds_runs_and_restarts_change_nothing_with_a_real_ledger(tmp_path):
    found = []
    for seed in (0, 1):
        site = fs.Site("a", rows(), ledger=ledger_at(tmp_path))
        found.append(reply(site, seed=seed, wire=bool(seed)))
        fed = fs.LocalFederation([site], seed=seed)
        fed.ask(local_sums)  # another call number
        found.append(fed.ask(local_noisy_pull, Y=Y, gamma=GAMMA, multiplier=MULTIPLIER)["a"]["pull"])
    assert len({array.tobytes() for array in found}) == 1
    assert len(ledger_at(tmp_path).charges) == 1


def test_simulated_noise_follows_from_the_seed():
    site = fs.Site("a", rows())
    assert reply(site, seed=0).tobytes() == reply(site, seed=0).tobytes()
    assert reply(site, seed=0).tobytes() != reply(site, seed=1).tobytes()


def test_other_data_other_queries_and_other_sites_have_other_noise(tmp_path):
    changed = rows()
    changed[-1, -1] += 1e-9  # in one cell only
    ledger = ledger_at(tmp_path)
    sites = [
        fs.Site("a", rows(), ledger=ledger),
        fs.Site("a", changed, ledger=ledger),
        fs.Site("b", rows(), ledger=ledger),
        fs.Site("a", rows(), y=np.zeros(30), ledger=ledger),
    ]
    all_ = [noise(site).ravel() for site in sites] + [noise(sites[0], Y + 1e-9).ravel()]
    apart = np.abs(np.corrcoef(all_))[np.triu_indices(len(all_), 1)]
    assert apart.max() < 5 / np.sqrt(Y.size)
    assert len(ledger.charges) == len(all_)


def test_a_site_s_state_is_part_of_the_query():
    site = fs.Site("a", rows())
    fed = fs.LocalFederation([site])
    first = fed.ask(count_with_noise)["a"]
    second = fed.ask(count_with_noise)["a"]
    assert first["exact"] == 1
    assert second["exact"] == 2
    assert second["noisy"] - 2 != first["noisy"] - 1  # the same noise on two replies would reveal their difference


def test_a_site_s_random_numbers_are_part_of_the_query(tmp_path):
    site = fs.Site("a", rows(), ledger=ledger_at(tmp_path))
    first, second = (fs.LocalFederation([site], seed=seed).ask(draw_with_noise)["a"] for seed in (0, 1))
    assert first["noisy"] - first["exact"] != second["noisy"] - second["exact"]


def test_two_draws_of_one_call_differ(tmp_path):
    site = fs.Site("a", rows(), ledger=ledger_at(tmp_path))
    reply = fs.LocalFederation([site]).ask(twice)["a"]
    assert reply["one"] != reply["other"]


@fs.step
def count_with_noise(site):
    site.state["calls"] = site.state.get("calls", 0) + 1
    noisy = site.state["calls"] + float(normal(site.charged(mu2=1.0), ()))
    return {"noisy": noisy, "exact": site.state["calls"]}


@fs.step
def draw_with_noise(site):
    exact = float(site.rng.normal())
    return {"exact": exact, "noisy": exact + float(normal(site.charged(mu2=1.0), ()))}


def test_a_draw_after_the_charge_is_refused(tmp_path):
    with pytest.raises(QuorumError, match="before it charges"):
        fs.LocalFederation([fs.Site("a", rows())]).ask(draw_too_late)


@fs.step
def draw_too_late(site):
    return {"noisy": float(normal(site.charged(mu2=1.0), ())) + site.rng.normal()}


@pytest.mark.parametrize("faults", [{"drop": 0.4}, {"duplicate": 0.5, "stale": 0.4}, {"delay": 0.4, "error": 0.2}])
def test_lost_late_and_repeated_replies_are_charged_once(faults, tmp_path):
    sites = [fs.Site(name, rows(k), ledger=ledger_at(tmp_path, name)) for k, name in enumerate("abcdef")]
    fed = fs.LocalFederation(sites, policy=fs.Policy(quorum=1)).with_faults(fs.FaultPlan(seed=3, **faults))
    privacy = fs.privacy.GaussianGradient(20.0, 1e-5, center=0.0, scale=0.5)
    fs.FedLandmarks(5, rounds=8, privacy=privacy, random_state=0).fit(fed)
    for site in sites:
        assert 0 < len(site.ledger.charges) <= 8
        assert site.ledger.spent <= 20.0 + 1e-6


def test_an_attacker_learns_what_the_charge_allows(tmp_path):
    """The worst pair of tables, distinguished by the best test, from replies of 600 sites with their own secrets."""
    here = np.zeros((40, 5))
    reach = np.array([1 / np.sqrt(2 * GAMMA), 0, 0, 0, 0])
    tables = [np.vstack([rows(), side * reach]) for side in (1, -1)]
    exact = [bounded_pull(fs.Site("a", X), here, GAMMA) for X in tables]
    direction = (exact[0] - exact[1]) / np.linalg.norm(exact[0] - exact[1])
    scores = np.array(
        [
            [np.vdot(direction, reply(fs.Site("a", X), here, seed=seed + 1000 * k)) for seed in range(300)]
            for k, X in enumerate(tables)
        ]
    )
    found = (scores[0].mean() - scores[1].mean()) / np.sqrt((scores.var(axis=1, ddof=1)).mean())
    assert found == pytest.approx(1 / MULTIPLIER, abs=5 * np.sqrt(2 / 300))


@fs.step
def twice(site):
    return {"one": float(normal(site.charged(mu2=1.0), ())), "other": float(normal(site.charged(mu2=1.0), ()))}


def test_a_site_whose_budget_is_spent_fails_and_the_others_continue(tmp_path):
    poor = ledger_at(tmp_path, "b", epsilon=epsilon_of(1.5 / MULTIPLIER, 1e-5))
    sites = [fs.Site("a", rows()), fs.Site("b", rows(1), ledger=poor), fs.Site("c", rows(2))]
    fed = fs.LocalFederation(sites)
    payload = {"gamma": GAMMA, "multiplier": MULTIPLIER}
    first = fed.ask(local_noisy_pull, Y=Y, **payload)
    for more in (0.1, 0.2):
        replies = fed.ask(local_noisy_pull, Y=Y + more, **payload)
    assert not first.failed
    assert list(replies.ok) == ["a", "c"]
    assert "this site refuses: its privacy budget is epsilon=" in replies.failed["b"]
    assert fed.ask(local_noisy_pull, Y=Y, **payload)["b"]["pull"].tobytes() == first["b"]["pull"].tobytes()


def test_if_all_sites_refuse_the_run_fails_with_their_reason(tmp_path):
    sites = [fs.Site(name, rows(), ledger=ledger_at(tmp_path, name, epsilon=0.5)) for name in "abc"]
    model = fs.FedLandmarks(5, rounds=3, privacy=fs.privacy.GaussianGradient(8.0, 1e-5))
    refused = pytest.raises(QuorumError, match=r"this site refuses: its privacy budget is epsilon=0\.5")
    with pytest.warns(UserWarning, match="budget of a, b, c does not last for this run"), refused:
        model.fit(fs.LocalFederation(sites))


def test_every_view_of_a_site_keeps_its_ledger(tmp_path):
    ledger = ledger_at(tmp_path)
    site = fs.Site("a", rows(), ledger=ledger)
    assert site.through(lambda X: X).ledger is ledger
    assert site.with_rows(rows(1)).ledger is ledger
    assert site.in_call(CallContext({}, ledger=ledger)).ledger is ledger
    assert fs.Site("a", rows()).ledger is None
    with pytest.raises(InputError, match=r"ledger=.* must be a fedspan.privacy.Ledger"):
        fs.Site("a", rows(), ledger="a.ledger")


def test_a_strict_ledger_lets_nothing_leave_without_noise(tmp_path):
    site = fs.Site("a", rows(), ledger=ledger_at(tmp_path, strict=True))
    fed = fs.LocalFederation([site])
    with pytest.raises(QuorumError, match=r"strict ledger of site 'a' lets no reply leave.*'sums.sums'"):
        fed.ask(local_sums)
    fed.ask(local_noisy_pull, Y=Y, gamma=GAMMA, multiplier=MULTIPLIER)
    noisy = fs.privacy.GaussianData(30.0, 1e-5, clip=2.0)
    with_noisy_rows(fed, noisy).ask(local_sums)  # made of rows with noise


@pytest.mark.parametrize("what", ["y", "task"])
@pytest.mark.parametrize("strict", [False, True, None])
def test_noise_on_the_rows_does_not_let_targets_and_tasks_pass(what, strict, tmp_path):
    ledger = None if strict is None else ledger_at(tmp_path, strict=strict)
    site = fs.Site("a", rows(), np.arange(30.0), np.arange(30) % 2, ledger=ledger)
    noisy = with_noisy_rows(fs.LocalFederation([site]), fs.privacy.GaussianData(30.0, 1e-5, clip=2.0))
    with pytest.raises(QuorumError, match=f"site 'a' does not show its {what} beside noisy rows"):
        noisy.ask(raw_column, what=what)
    with pytest.raises(QuorumError, match="does not show its"):  # nor through a second transform
        noisy.apply(doubled).ask(raw_column, what=what)
    assert noisy.ask(batch_columns)["a"]["seen"] == 0
    with pytest.raises(QuorumError, match="does not show its"):
        fs.FedFewShotRegressor(1, random_state=0).fit(noisy)
    assert site.y is not None  # the site itself still has it


def test_a_site_without_targets_has_none_beside_noisy_rows():
    noisy = fs.Site("a", rows()).with_rows(rows(1))
    assert noisy.y is None
    assert noisy.task is None


@fs.step
def raw_column(site, what):
    return {"values": getattr(site, what)}


@fs.step
def batch_columns(site):
    return {"seen": sum((batch.y is not None) + (batch.task is not None) for batch in site.batches(10))}


@fs.transform
def doubled(X):
    return 2 * X


def test_a_journal_has_no_digest_by_which_rows_can_be_guessed(tmp_path):
    X = np.array([[3.0, 1.0, 4.0]])
    here, there = (ledger_at(tmp_path, name) for name in "ab")
    prints = [fs.Site("a", X, ledger=ledger).fingerprint() for ledger in (None, here, there)]
    assert len(set(prints)) == 3
    assert {text.partition("#")[0] for text in prints} == {"1x3 float64 "}
    assert fs.Site("a", X, ledger=ledger_at(tmp_path)).fingerprint() == prints[1]  # the same ledger, the same print
    assert fs.Site("a", X + 1, ledger=here).fingerprint() != prints[1]


def test_a_run_with_ledgers_is_resumed_by_the_same_site_alone(tmp_path):
    privacy = fs.privacy.GaussianData(30.0, 1e-5, clip=2.0)

    def fitted(name, change=0.0):
        site = fs.Site("a", rows() + change, ledger=ledger_at(tmp_path, name))
        fed = fs.LocalFederation([site], run_dir=tmp_path / "run")
        return fs.FedLandmarks(5, rounds=2, privacy=privacy, random_state=0).fit(fed).landmarks_.tobytes()

    first = fitted("a")
    plain = fs.Site("a", rows()).fingerprint().partition("#")[2]
    assert plain.encode() not in (tmp_path / "run" / "run-000" / "journal").read_bytes()
    assert fitted("a") == first
    for other in ({"name": "b"}, {"name": "a", "change": 1e-3}):
        with pytest.raises(fs.errors.JournalError):
            fitted(**other)


@pytest.mark.parametrize("step", ["raise_rows", "charge_and_raise_rows", "not_a_reply"])
def test_no_error_text_made_of_rows_passes_a_strict_ledger(step, tmp_path):
    def text(strict, transform=None):
        site = fs.Site("a", rows() + 777.0, ledger=ledger_at(tmp_path, strict=strict))
        fed = fs.LocalFederation([site])
        fed = fed.apply(transform) if transform else fed
        with pytest.raises(QuorumError) as caught:
            fed.ask(globals()[step])
        return str(caught.value)

    assert "777" in text(strict=False)
    assert "777" not in text(strict=True)
    assert "777" in text(strict=False, transform=raising_transform)
    assert "777" not in text(strict=True, transform=raising_transform)


def test_a_refused_step_gives_the_same_reason_whether_it_failed_or_not(tmp_path):
    fed = fs.LocalFederation([fs.Site("a", rows(), ledger=ledger_at(tmp_path, strict=True))])
    for step, id in ((raise_rows, "raise_rows"), (local_sums, "sums.sums")):
        with pytest.raises(QuorumError, match=rf"strict ledger of site 'a' lets no reply leave.*{id}"):
            fed.ask(step)
    with pytest.raises(QuorumError, match=r"charge_and_raise_rows' failed at site 'a'.*keeps the reason at the site"):
        fed.ask(charge_and_raise_rows)


READERS = {
    "X": lambda site: site.X,
    "y": lambda site: site.y,
    "task": lambda site: site.task,
    "frame": lambda site: site.frame,
    "batches": lambda site: next(site.batches(2)),
    "cached": lambda site: site.cached("kept", lambda: 1),
    "last_of": lambda site: site.last_of("kept", 1, lambda: 1),
    "digest": lambda site: site.digest(),
    "fingerprint": lambda site: site.fingerprint(),
    "through": lambda site: site.through(lambda X: X).X,
    "with_rows": lambda site: site.with_rows(np.zeros((30, 5))).X,
}


@pytest.mark.parametrize("how", READERS)
def test_a_strict_site_shows_its_data_to_no_step_that_has_not_charged(how, tmp_path):
    read = []

    @fs.step
    def reader(site, charge):
        if charge:
            site.charged(mu2=1e-3)
        READERS[how](site)
        read.append(charge)
        return {"n": len(site)}

    site = fs.Site("a", rows(), np.zeros(30), np.zeros(30), ledger=ledger_at(tmp_path, strict=True))
    with pytest.raises(QuorumError, match="strict ledger of site 'a' lets no reply leave"):
        fs.LocalFederation([site]).ask(reader, charge=False)
    assert not read
    assert fs.LocalFederation([site]).ask(reader, charge=True)["a"]["n"] == 30
    assert read == [True]


def test_transforms_before_noise_keep_their_errors_at_a_strict_site(tmp_path):
    site = fs.Site("a", rows() + 777.0, ledger=ledger_at(tmp_path, strict=True))
    fed = fs.LocalFederation([site]).apply(raising_transform)
    with pytest.raises(QuorumError, match="keeps the reason at the site") as caught:
        with_noisy_rows(fed, fs.privacy.GaussianData(30.0, 1e-5, clip=2.0)).ask(local_sums)
    assert "777" not in str(caught.value)


def test_a_strict_site_reports_that_its_budget_is_spent(tmp_path):
    site = fs.Site("a", rows(), ledger=ledger_at(tmp_path, epsilon=0.1, strict=True))
    with pytest.raises(QuorumError, match=r"its privacy budget is epsilon=0\.1"):
        reply(site)


@fs.step
def raise_rows(site):
    raise ValueError(f"row 0 is {site.X[0].astype(int)}")


@fs.step
def charge_and_raise_rows(site):
    site.charged(mu2=1e-3)
    raise ValueError(f"row 0 is {site.X[0].astype(int)}")


@fs.step
def not_a_reply(site):
    site.charged(mu2=1e-3)
    return {f"row 0 is {site.X[0].astype(int)}": object()}


@fs.transform
def raising_transform(X):
    raise ValueError(f"row 0 is {X[0].astype(int)}")


def test_a_strict_site_takes_part_where_all_is_covered(tmp_path):
    sites = [fs.Site(name, rows(k), ledger=ledger_at(tmp_path, name, strict=True)) for k, name in enumerate("abc")]
    fed = fs.LocalFederation(sites)
    covered = fs.privacy.GaussianGradient(20.0, 1e-5, center=0.0, scale=0.5)
    assert fs.FedLandmarks(5, rounds=2, privacy=covered).fit(fed).privacy_.leaves_out == ()
    with pytest.raises(QuorumError, match=r"'sums\.moments'"):
        fs.FedLandmarks(5, rounds=2, privacy=fs.privacy.GaussianGradient(20.0, 1e-5)).fit(fed)
    with pytest.raises(InputError, match="a, b, c send nothing without noise"):
        fs.FedSpectralClustering(2, n_landmarks=5, rounds=2, privacy=covered).fit(fed)


def test_a_strict_site_in_a_secure_sum(tmp_path):
    pytest.importorskip("cryptography")
    sites = [fs.Site(name, rows(k), ledger=ledger_at(tmp_path, name, strict=True)) for k, name in enumerate("abc")]
    fed = fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True))
    with pytest.raises(QuorumError, match="strict ledger"):
        fed.sum(local_sums)
    fed.sum(local_noisy_pull, Y=Y, gamma=GAMMA, multiplier=MULTIPLIER)


def test_a_site_of_another_engine_needs_a_ledger():
    call = Call("r", 0, 0, find_step(local_noisy_pull), {}, ("a",))
    with pytest.raises(InputError, match="has no ledger"):
        SiteHost(fs.Site("a", rows())).perform(call, {"Y": Y, "gamma": GAMMA, "multiplier": 1.0}, -1)


def test_a_share_of_noise_leaves_in_a_secure_sum_alone():
    @fs.step
    def shared_noise(site):
        site.hidden_among(2, deviation=1.0)
        return {"n": 1}

    sites = [fs.Site(name, rows()) for name in "abc"]
    with pytest.raises(QuorumError, match=r"only where a secure sum hides its part .*and this call is not part of one"):
        fs.LocalFederation(sites).sum(shared_noise)


def test_the_transforms_that_see_rows_without_noise():
    fed = fs.LocalFederation([fs.Site("a", rows())])
    assert fed.plain_transforms == ()
    before = fed.apply(doubled).apply(doubled)
    name = f"{__name__}.doubled"
    assert before.plain_transforms == (name, name)
    noisy = with_noisy_rows(before, fs.privacy.GaussianData(30.0, 1e-5, clip=2.0))
    assert noisy.apply(doubled).plain_transforms == (name, name)


def test_a_query_keeps_its_digest():
    """A ledger outlasts versions of this package: with another digest, old queries would be charged again."""
    payload = {"x": np.arange(3.0), "n": 2}
    found = query_digest("a.step", payload, (b"transform", b""), b"data", ("more", 1))
    assert found.hex() == "694cfebaa9cdf601678e96d1793375b3ce2b24c88243820823e3f542bf9843d4"
    assert found != query_digest("a.step", payload, (b"len", b"s"), b"data", ("more", 1))
    numbers = fs.Site("a", np.arange(6.0).reshape(3, 2), y=np.arange(3, dtype=np.int64))
    words = fs.Site("a", pd.DataFrame({"x": [1.5, 2.5], "t": ["u", "v"]}), task=["b", "c"])
    assert numbers.digest().hex() == "b1c0eeaf4dc76860add380cdf660a4e68711eced3bf2a1dc823ea4dfe7617936"
    assert words.digest().hex() == "0530a3522b49cca756e9c5183d96a2d99ccd3b5f512670a2bd6eb58ce5196562"


@fs.step
def own_or_simulated(site):
    return {"simulated": site.ledger.simulated} if site.ledger is not None else {}


def test_only_embedded_sites_without_a_ledger_simulate_one(tmp_path):
    call = Call("r", 0, 7, find_step(own_or_simulated), {}, ("a",))
    made = []

    def simulated(name, seed):
        made.append((name, seed))
        return SimulatedLedger(name, seed)

    assert SiteHost(fs.Site("a", rows()), simulated=simulated).perform(call, {}, -1).reply == {"simulated": True}
    assert made == [("a", 7)]
    owned = fs.Site("a", rows(), ledger=ledger_at(tmp_path))
    assert SiteHost(owned, simulated=pytest.fail).perform(call, {}, -1).reply == {"simulated": False}
    assert SiteHost(fs.Site("a", rows())).perform(call, {}, -1).reply == {}
