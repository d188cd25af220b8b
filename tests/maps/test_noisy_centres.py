"""Centres with noise: how far a row can move a sum, the noise of a sum, charged ledgers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError, QuorumError
from fedspan.federation.privacy_spent import ROW_ADDED
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.steps import find_step
from fedspan.maps.parts import noisy_centres as protocol
from fedspan.maps.parts.noisy_centres import (
    CELLS_SENSITIVITY,
    NoisyBook,
    local_noisy_cells,
    local_noisy_scatter,
    noisy_centres,
)
from fedspan.pca.noisy_covariance import SENSITIVITY as SCATTER_SENSITIVITY
from fedspan.privacy import GaussianCenters, Ledger, accountant_epsilon, epsilon_of, mu_of

SECURE = fs.Policy(secure_sum=True)
D = 4
ALONE = {"sharers": 1, "colluding": 0}


def groups(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, D)) + 6 * np.eye(3, D)[y], y


def fed_of(n=600, sites=5, **options):
    return fs.federate(groups(n)[0], sites=np.arange(n) % sites, **options)


def exact(X, step, monkeypatch, **payload):
    """Return what a site would send without noise, as one vector."""
    monkeypatch.setattr("fedspan.privacy.noisy_sums.with_noise", lambda exact, **_: exact)
    site = fs.Site("a", X)
    reply = fs.LocalFederation([site]).ask(step, multiplier=1.0, **ALONE, **payload)["a"]
    return np.concatenate([np.ravel(reply[key]) for key in sorted(reply)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0, 7.0, 1e9, 1e200, np.nan, np.inf]))
def test_no_row_moves_a_sum_beyond_the_bound(seed, far):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, D)) * 10.0 ** rng.integers(-2, 3)
    row = np.full((1, D), far) if not np.isfinite(far) else far * rng.normal(size=(1, D))
    center, clip = rng.normal(size=D), float(rng.choice([0.1, 1.0, 30.0]))
    axes = np.linalg.qr(rng.normal(size=(D, 3)))[0].T
    with pytest.MonkeyPatch.context() as patch:
        query = {"center": center, "clip": clip}
        before, after = (exact(rows, local_noisy_scatter, patch, **query) for rows in (X, np.concatenate([X, row])))
        assert np.linalg.norm(after - before) <= SCATTER_SENSITIVITY
        query |= {"axes": axes, "centres": rng.uniform(-1.0, 1.0, size=(5, 3))}
        before, after = (exact(rows, local_noisy_cells, patch, **query) for rows in (X, np.concatenate([X, row])))
        assert np.linalg.norm(after - before) <= CELLS_SENSITIVITY


def test_the_bounds_are_attained(monkeypatch):
    X, row = np.zeros((3, D)), 9.0 * np.eye(1, D)
    query = {"center": np.zeros(D), "clip": 2.0}
    moved = [exact(rows, local_noisy_scatter, monkeypatch, **query) for rows in (X, np.concatenate([X, row]))]
    assert np.linalg.norm(moved[1] - moved[0]) == pytest.approx(np.sqrt(1.5), rel=1e-6)
    query |= {"axes": np.eye(2, D), "centres": np.array([[0.0, 0.0], [1.0, 0.0]])}
    moved = [exact(rows, local_noisy_cells, monkeypatch, **query) for rows in (X, np.concatenate([X, row]))]
    assert np.linalg.norm(moved[1] - moved[0]) == pytest.approx(np.sqrt(1.25), rel=1e-6)


def test_products_give_the_scatter_matrix_back(monkeypatch):
    X = groups(50)[0]
    found = exact(X, local_noisy_scatter, monkeypatch, center=np.zeros(D), clip=100.0)
    products, rows, sums = np.split(found, [D * (D + 1) // 2, D * (D + 1) // 2 + 1])
    assert rows == pytest.approx(25.0)  # half of 50
    np.testing.assert_allclose(sums, X.sum(axis=0) / 200)
    U = X / 100
    values, axes = protocol._axes(products / 50, U.mean(axis=0), 2)
    right = np.linalg.eigh(np.cov(U.T, bias=True))
    np.testing.assert_allclose(values, right[0][::-1][:2])
    np.testing.assert_allclose(np.abs(np.vecdot(axes, right[1][:, ::-1][:, :2].T)), 1.0)


@pytest.mark.parametrize(("policy", "colluding", "share"), [(None, 0, 1), (SECURE, 0, 7), (SECURE, 2, 5)])
def test_a_sum_has_at_least_the_promised_noise(policy, colluding, share):
    rows = 30  # columns, so that there are many numbers
    fed = fs.federate(np.zeros((20, rows)), sites=np.arange(20) % 10, policy=policy)
    query = {"center": np.zeros(rows), "clip": 1.0, "multiplier": 3.0, "sharers": share, "colluding": colluding}
    products = fed.sum(local_noisy_scatter, **query)["products"]
    variance = np.mean(np.square(products)) / (3.0**2 * SCATTER_SENSITIVITY**2)
    assert variance == pytest.approx(10 / share, rel=0.2)  # ten parts, each with its share of 1


def test_drop_outs_leave_all_of_the_noise():
    fed = fs.federate(np.zeros((20, 30)), sites=np.arange(20) % 10, policy=SECURE)
    plan = fs.FaultPlan(seed=3, drop=0.06)
    query = {"center": np.zeros(30), "clip": 1.0, "multiplier": 3.0, "sharers": 7, "colluding": 0}
    seen = []
    for number in range(12):
        try:
            total = fed.with_faults(plan).sum(local_noisy_scatter, **{**query, "multiplier": 3.0 + 1e-9 * number})
        except QuorumError:
            continue
        variance = np.mean(np.square(total["products"])) / (9.0 * SCATTER_SENSITIVITY**2)
        seen.append((len(total.sites), variance))
        assert variance == pytest.approx(len(total.sites) / 7, rel=0.25)
    assert min(sites for sites, _ in seen) < 10


def test_a_share_leaves_in_a_secure_sum_alone():
    query = {"center": np.zeros(D), "clip": 1.0, "multiplier": 3.0, "sharers": 4, "colluding": 0}
    with pytest.raises(QuorumError, match="adds a share of the noise only where a secure sum hides its part"):
        fed_of().ask(local_noisy_scatter, **query)
    with pytest.raises(QuorumError, match="adds a share of the noise only"):
        fed_of().sum(local_noisy_scatter, **query)


def test_a_site_takes_part_in_no_sum_that_has_less_noise():
    query = {"center": np.zeros(D), "clip": 1.0, "multiplier": 3.0, "sharers": 6, "colluding": 1}
    with pytest.raises(QuorumError, match=r"knows 5 sites, itself included, and is to add a share .* among 7"):
        fed_of(policy=SECURE).sum(local_noisy_scatter, **query)
    with pytest.raises(QuorumError, match="a threshold of 4 of 5 sites is below the 5 that this site demands"):
        fed_of(policy=SECURE).sum(local_noisy_scatter, **(query | {"sharers": 4}))  # five sites: a threshold of four


@pytest.mark.parametrize("wrong", [{"sharers": 10**6}, {"sharers": 10**16}, {"sharers": 1e300}, {"colluding": 10}])
def test_shares_for_sites_that_do_not_exist_are_refused_and_not_charged(wrong, tmp_path):
    ledgers = [Ledger(tmp_path / f"l{i}", epsilon=1.0, delta=1e-5) for i in range(4)]
    sites = [fs.Site(f"s{i}", groups(30, i)[0], ledger=ledgers[i]) for i in range(4)]
    query = {"center": np.zeros(D), "clip": 1.0, "multiplier": 1e4, "sharers": 3, "colluding": 0}
    fed = fs.LocalFederation(sites, policy=SECURE)
    with pytest.raises(FedspanError, match=r"knows 4 sites, itself included|sharers must be a whole number"):
        fed.sum(local_noisy_scatter, **(query | wrong))
    assert [ledger.cost.mu2 for ledger in ledgers] == [0.0] * 4
    fed.sum(local_noisy_scatter, **query)
    assert [ledger.cost.mu2 for ledger in ledgers] == [pytest.approx(1e-8)] * 4


def test_noise_below_the_resolution_is_refused():
    policy = fs.Policy(secure_sum=fs.SecureSum(largest=1e6, resolution=1.0))
    query = {"center": np.zeros(D), "clip": 1.0, "multiplier": 3.0, "sharers": 4, "colluding": 0}
    with pytest.raises(QuorumError, match="which a secure sum to 1 would round away"):
        fed_of(policy=policy).sum(local_noisy_scatter, **query)


def test_defaults_and_what_is_found():
    X, y = groups(4000)
    fed = fs.federate(X, sites=np.arange(4000) % 5, policy=SECURE)
    found = fed.run(noisy_centres, privacy=GaussianCenters(20.0, 1e-5, clip=9.0), random_state=0)
    assert found.n == pytest.approx(4000, abs=30)
    np.testing.assert_allclose(found.mean, X.mean(axis=0), atol=0.2)
    # Each group has a centre of its own.
    raw = found.mean + found.centres @ found.axes / np.vdot(found.axes[0], found.axes[0])
    middles = np.stack([X[y == label].mean(axis=0) for label in range(3)])
    apart = np.linalg.norm((middles[:, None] - raw)[..., :], axis=2).min(axis=1)
    assert (apart < 1.5).all()


def test_what_is_spent_is_what_the_accountant_counts(monkeypatch):
    pytest.importorskip("dp_accounting")
    events = []
    charged = fs.Site.charged
    monkeypatch.setattr(
        fs.Site, "charged", lambda site, mu2, **more: (events.append(mu2**-0.5), charged(site, mu2=mu2, **more))[1]
    )
    fed = fed_of(sites=1)
    fed.run(noisy_centres, privacy=GaussianCenters(3.0, 1e-6, clip=9.0), book=NoisyBook(k_means_rounds=3, axes=2))
    assert len(events) == 4
    counted = accountant_epsilon({z: events.count(z) for z in set(events)}, 1e-6)
    assert counted == pytest.approx(3.0, rel=0.01)
    assert sum(z**-2.0 for z in events) == pytest.approx(mu_of(3.0, 1e-6) ** 2)
    assert events[0] ** -2 == pytest.approx(mu_of(3.0, 1e-6) ** 2 / 4)


def test_a_ledger_is_charged_once_without_secure_sums_and_each_time_with(tmp_path):
    for name, policy in (("plain", None), ("secure", SECURE)):
        ledgers = {i: Ledger(tmp_path / f"{name}-{i}.ledger", epsilon=6.5, delta=1e-5) for i in range(4)}
        sites = [fs.Site(f"s{i}", groups(300, i)[0], ledger=ledgers[i]) for i in range(4)]
        fed = fs.LocalFederation(sites, policy=policy)
        privacy = GaussianCenters(4.0, 1e-5, clip=9.0)
        book = NoisyBook(centres=4, axes=2, k_means_rounds=2)
        first = fed.run(noisy_centres, privacy=privacy, book=book, random_state=0)
        assert ledgers[0].spent == pytest.approx(4.0)
        again = fed.run(noisy_centres, privacy=privacy, book=book, random_state=0)
        if policy is None:
            np.testing.assert_array_equal(first.centres, again.centres)
            assert ledgers[0].spent == pytest.approx(4.0)
        else:
            assert not np.array_equal(first.mean, again.mean)  # the same noise in two sums could reveal a part
            assert ledgers[0].spent == pytest.approx(epsilon_of(np.sqrt(2) * mu_of(4.0, 1e-5), 1e-5))
            with pytest.warns(UserWarning, match="does not last"), pytest.raises(QuorumError, match="privacy budget"):
                fed.run(noisy_centres, privacy=privacy, book=book, random_state=0)


def test_a_strict_ledger_lets_it_all_through(tmp_path):
    sites = [
        fs.Site(
            f"s{i}",
            groups(300, i)[0],
            ledger=Ledger(tmp_path / f"{i}.ledger", epsilon=9.0, delta=1e-5, strict=True),
        )
        for i in range(3)
    ]
    book = NoisyBook(centres=4, axes=2, k_means_rounds=2)
    fed = fs.LocalFederation(sites, policy=fs.Policy(quorum="all"))
    fed.run(noisy_centres, privacy=GaussianCenters(8.0, 1e-5, clip=9.0), book=book, random_state=0)


def test_the_record_has_what_is_covered():
    privacy = GaussianCenters(8.0, 1e-5, clip=9.0, colluding=1)
    fed = fed_of(policy=SECURE)
    with fed.begin("test") as run:
        noisy_centres(run, privacy=privacy, book=NoisyBook(centres=4, axes=2))
        spent = run.record.privacy
    assert spent.unit == ROW_ADDED
    assert spent.worst == pytest.approx(8.0)
    assert "for one row of one site added or removed" in spent.sentence()
    assert "secure sums of 4 or more sites, at most 1 of which may collude" in spent.sentence()
    assert "does not cover positions of rows on the map, if they are posted later" in spent.sentence()
    assert "nor the numbers of rows that sites report of their tables, which the head of a journal" in spent.sentence()


@pytest.mark.parametrize(
    ("privacy", "policy", "message"),
    [
        (GaussianCenters(8.0, 1e-5, clip=0.0), None, "clip=0.0 must"),
        (GaussianCenters(8.0, 1e-5, clip=1.0, center=None), None, "center=None must"),
        (GaussianCenters(8.0, 1e-5, clip=1.0, center=[1.0, 2.0]), None, "center has 2 numbers"),
        (GaussianCenters(8.0, 1e-5, clip=1.0, colluding=1), None, "colluding=1 needs secure sums"),
        (GaussianCenters(8.0, 1e-5, clip=1.0, colluding=4), SECURE, "colluding=4 must be below 4"),
        (GaussianCenters(8.0, 1e-5, clip=1.0, colluding=-1), SECURE, "colluding=-1 must"),
        (GaussianCenters(0.001, 1e-5, clip=1.0), None, "no centre has more rows than its noise"),
    ],
)
def test_what_cannot_work_is_refused(privacy, policy, message):
    with pytest.raises(InputError, match=message):
        fed_of(policy=policy).run(noisy_centres, privacy=privacy)


def test_too_many_columns():
    with pytest.raises(
        InputError, match="5000 columns are too many for sums of their products with noise: use at most 4096"
    ):
        fs.federate(np.zeros((4, 5000)), sites=np.arange(4) % 2).run(
            noisy_centres, privacy=GaussianCenters(8.0, 1e-5, clip=1.0)
        )


def test_a_run_is_resumed_with_the_same_noise(tmp_path):
    book = NoisyBook(centres=4, axes=2, k_means_rounds=3)
    privacy = GaussianCenters(8.0, 1e-5, clip=9.0)
    ledger = Ledger(tmp_path / "a.ledger", epsilon=8.5, delta=1e-5)  # for one run, and no more

    def make(folder):
        first = fs.Site("a", groups(300, 0)[0], ledger=ledger)
        sites = [first, *(fs.Site(f"s{i}", groups(300, i)[0]) for i in range(1, 4))]
        with fs.LocalFederation(sites, policy=SECURE, run_dir=folder) as fed:
            return fed.run(noisy_centres, privacy=privacy, book=book, random_state=0)

    def killed(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "beside_others", killed)  # before the second round of k-means
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "run")
    spent = ledger.cost.mu2
    found = make(tmp_path / "run")
    assert spent < ledger.cost.mu2 <= mu_of(8.5, 1e-5) ** 2
    assert ledger.cost.mu2 == pytest.approx(mu_of(8.0, 1e-5) ** 2)  # nothing was charged twice
    assert found.n > 1000


def test_a_policy_error_is_for_steps_outside_of_sums():
    site = fs.Site("a", np.zeros((2, 2))).in_call(CallContext({}, number=0))
    with pytest.raises(PolicyError, match="this call is not part of one"):
        site.hidden_among(3, deviation=1.0)


def test_shares_are_sized_by_the_sites_that_take_part():
    """A site with other columns is left out, and the others' secure sums need fewer sites."""
    sites = [fs.Site(f"s{i}", groups(300, i)[0]) for i in range(5)] + [fs.Site("odd", np.zeros((9, 2)))]
    fed = fs.LocalFederation(sites, policy=SECURE)
    with fed.begin("test") as run, pytest.warns(UserWarning, match="odd"):
        found = noisy_centres(run, privacy=GaussianCenters(20.0, 1e-5, clip=9.0), book=NoisyBook(centres=4, axes=2))
    assert "secure sums of 4 or more sites" in run.record.privacy.sentence()
    assert found.n == pytest.approx(1500, abs=30)


def test_the_centre_of_a_row_does_not_depend_on_where_it_is_in_the_table(monkeypatch):
    """Identical rows on the boundary of two cells: a row in front of them moves all of them, but not their sums."""
    d, n = 23, 997
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(d, 3)))[0].T
    for seed in range(20):
        row = np.random.default_rng(seed).normal(size=d) * 0.1
        z = axes @ row
        away = np.random.default_rng(seed + 100).normal(size=3) * 0.2
        centres = np.vstack([z + away, z - away])
        sums = []
        for before in (0, 1, 3):
            X = np.vstack([np.zeros((before, d)), np.tile(row, (n, 1))])
            query = {"center": np.zeros(d), "clip": 1.0, "axes": axes, "centres": centres}
            sums.append(exact(X, local_noisy_cells, monkeypatch, **query))
        nothing = exact(np.zeros((1, d)), local_noisy_cells, monkeypatch, **query)
        for before, found in zip((1, 3), sums[1:], strict=True):
            np.testing.assert_allclose(found - before * nothing, sums[0], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("axes", 1e8 * np.ones((3, D))), ("axes", np.ones((2, D)) / 2), ("centres", np.full((4, 2), 1.5))],
)
def test_axes_and_centres_that_no_honest_call_has_are_refused(name, value):
    step = find_step("maps.noisy_cells")
    settings = {
        "center": np.zeros(D),
        "clip": 1.0,
        "axes": np.eye(D)[:2],
        "centres": np.zeros((4, 2)),
        "multiplier": 1.0,
    }
    assert step.validated(settings | ALONE)
    with pytest.raises(MessageError, match=name):
        step.validated(settings | ALONE | {name: value})
