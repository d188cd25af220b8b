"""Federated averaging: the weighted mean of changes, momentum, and an end that rows held back decide."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian, Mean
from fedspan.anomaly import autoencoder_detector as ae
from fedspan.anomaly.autoencoder_detector import autoencoder, autoencoder_network
from fedspan.anomaly.bigan_detector import bigan, bigan_network
from fedspan.anomaly.parts.fedavg import fedavg, local_change, rows_held_back
from fedspan.errors import InputError, QuorumError
from fedspan.federation.outcomes import EndingKind
from fedspan.federation.site.site import generator
from fedspan.sums.dealt_rows import block_of_rows

SCRIPT = {}


@fs.step
def move(site, weights, held_back, split, step_size, seed):
    """A site that goes part of the way to its mean."""
    change = step_size * (site.X.mean(axis=0) - weights)
    return {"n": len(site), "change": len(site) * change, "loss": len(site) * 2.0}


@fs.step
def scripted_error(site, weights, held_back, split):
    """The error that the test's script has for these weights."""
    error = SCRIPT["errors"](weights)
    return {"n": 2, "loss": 2 * error**2, "error": 2 * error}


def run(errors, sites=((1.0, 1), (4.0, 2)), **options):
    SCRIPT["errors"] = errors
    fed = fs.LocalFederation([fs.Site(str(i), np.full((n, 1), at)) for i, (at, n) in enumerate(sites)])
    settings = {"network": {}, "training": {}, "weights": np.zeros(1, dtype=np.float32), **options}
    with fed.begin("test", seed=0) as ran:
        return fedavg(ran, train=move, check=scripted_error, **settings), ran.record


def test_a_round_is_the_mean_weighted_by_rows():
    found, record = run(lambda w: 10.0 - w[0], step_size=0.5, max_rounds=1)
    np.testing.assert_allclose(found.weights, [0.5 * (1.0 + 2 * 4.0) / 3])
    assert found.weights.dtype == np.float32
    assert found.error == pytest.approx(8.5)
    np.testing.assert_allclose(found.history, [[0, 100.0, 100.0, 10.0, 0.5], [1, 2.0, 8.5**2, 8.5, 0.5]])
    assert record.stopped.kind is EndingKind.ROUNDS_USED_UP


@pytest.mark.parametrize("aggregator", [Mean(), None], ids=repr)
def test_momentum(aggregator):
    found, _ = run(lambda w: 10.0 - w[0], step_size=0.1, server_momentum=0.5, max_rounds=3, aggregator=aggregator)
    w, v = 0.0, 0.0
    for _ in range(3):
        v = 0.5 * v + 0.1 * (3.0 - w)
        w += v
    np.testing.assert_allclose(found.weights, [w], rtol=1e-6)


def test_medians_weigh_sites_alike():
    found, _ = run(
        lambda w: 10.0 - w[0], sites=((1.0, 1), (2.0, 1), (90.0, 50)), max_rounds=1, aggregator=CoordinateMedian()
    )
    np.testing.assert_allclose(found.weights, [0.2], rtol=1e-6)


def test_the_step_size_is_cut_twice_and_then_it_ends():
    """Errors fall until the weights are 1.2 and rise after it: back to the best, with smaller steps, and the end."""
    found, record = run(
        lambda w: 1.0 + abs(float(w[0]) - 1.2), step_size=0.3, server_momentum=0.0, patience=4, check_every=2
    )
    steps = found.history[:, 4]
    np.testing.assert_allclose(np.unique(steps)[::-1], [0.3, 0.1, 0.1 / 3])
    assert (np.diff(steps) <= 0).all()
    assert found.error == found.history[:, 3].min()
    assert found.error == pytest.approx(1.0 + abs(float(found.weights[0]) - 1.2))
    assert record.stopped.kind is EndingKind.CONVERGED
    np.testing.assert_array_equal(np.diff(found.history[:, 0]), 2)
    # After a cut it goes on from the best weights: nearer to 1.2 than where it was.
    cut = int(np.flatnonzero(np.diff(steps))[0])
    assert found.history[cut + 1, 3] < found.history[cut, 3]


def test_an_error_that_falls_by_less_than_a_hundredth_has_not_fallen():
    quick, _ = run(lambda w: 1.0 - 1e-4 * w[0], patience=3, check_every=1)
    assert quick.history[-1, 0] == 9  # three times three rounds
    slow, record = run(lambda w: np.exp(-w[0]), patience=3, check_every=1, max_rounds=12, server_momentum=0.0)
    assert slow.history[-1, 0] == 12
    assert slow.history[-1, 4] == 0.1
    assert record.stopped.kind is EndingKind.ROUNDS_USED_UP


def test_the_first_weights_are_kept_where_training_makes_it_worse():
    found, _ = run(lambda w: 1.0 + w[0], patience=2, check_every=1)
    assert found.weights.tolist() == [0.0]
    assert found.error == 1.0


def test_the_last_round_is_checked():
    found, _ = run(lambda w: 10.0 - w[0], max_rounds=7, check_every=5)
    assert found.history[:, 0].tolist() == [0, 5, 7]


@pytest.mark.parametrize(("n_sites", "participation", "trained"), [(30, None, 10), (4, None, 4), (30, 0.2, 6)])
def test_some_sites_train_and_all_are_checked(n_sites, participation, trained):
    _, record = run(lambda w: 1.0, sites=((1.0, 1),) * n_sites, participation=participation, max_rounds=3)
    asked = {call.step.rsplit(".", 1)[1]: set() for call in record.calls}
    for call in record.calls:
        asked[call.step.rsplit(".", 1)[1]].add(len(call.asked))
    assert asked == {"move": {trained}, "scripted_error": {n_sites}}
    groups = [call.asked for call in record.calls if call.step.endswith("move")]
    assert len(set(groups)) == (1 if trained == n_sites else 3)


def test_changes_that_overflow_are_refused():
    def huge(replies, bad, rng, call):
        return {site: {**replies[site], "change": np.array([1e300])} for site in bad if "change" in replies[site]}

    SCRIPT["errors"] = lambda w: 1.0
    fed = fs.LocalFederation([fs.Site(str(i), np.ones((2, 1))) for i in range(5)]).corrupt(huge, sites=["0"])
    settings = {"train": move, "check": scripted_error, "network": {}, "training": {}, "max_rounds": 2}
    with pytest.raises(InputError, match=r"overflows: a site sends false values.*CoordinateMedian"):
        fed.run(fedavg, weights=np.zeros(1, dtype=np.float32), **settings)
    found = fed.run(fedavg, weights=np.zeros(1, dtype=np.float32), aggregator=CoordinateMedian(), **settings)
    assert found.weights.tolist() == [0.0]


# Rows held back.


@pytest.mark.parametrize(
    ("n", "share", "count"), [(0, 0.1, 0), (1, 0.5, 0), (2, 0.1, 1), (2, 0.9, 1), (10, 0.1, 1), (100, 0.25, 25)]
)
def test_how_many_rows_are_held_back(n, share, count):
    mask = rows_held_back(fs.Site("a", np.zeros((n, 2))), share, split=3)
    assert mask.shape == (n,)
    assert mask.sum() == count


def test_which_rows_are_held_back_depends_on_seed_and_site_alone():
    a, b = (fs.Site(name, np.zeros((100, 2))) for name in "ab")
    np.testing.assert_array_equal(rows_held_back(a, 0.1, 3), rows_held_back(a, 0.1, 3))
    assert (rows_held_back(a, 0.1, 3) != rows_held_back(a, 0.1, 4)).any()
    assert (rows_held_back(a, 0.1, 3) != rows_held_back(b, 0.1, 3)).any()


@pytest.mark.parametrize("target", [None, np.arange(200) % 3 == 0], ids=["no target", "classes"])
def test_seeds_of_requests_select_blocks_of_rows_and_no_single_rows(target):
    """With single rows held back, the losses for 400 seeds were as many linear equations: they gave each row."""
    site = fs.Site("a", np.zeros((200, 2)), target)
    held = np.array([rows_held_back(site, share, seed) for share in (0.1, 0.33, 0.5) for seed in range(100)])
    assert np.linalg.matrix_rank(held.astype(float)) <= 20
    _, alike = np.unique(held, axis=1, return_counts=True)  # rows that no request tells apart
    assert alike.min() == 10


def test_batches_are_made_of_blocks_of_rows():
    """Momentum weights a batch by its place in a round: over seeds, single rows would follow from the changes."""
    torch = pytest.importorskip("torch")
    X = np.arange(200.0)[:, None]
    site, network = fs.Site("a", X), autoencoder_network(1, np.array([], dtype=np.int64), 1)
    seen = []

    def gradients(trained, x, rng):
        seen.append(np.isin(X[:, 0], x[:, 0].numpy()))
        return torch.zeros(()), [torch.zeros(network.size)]

    for seed in range(40):
        weights = np.zeros(network.size, dtype=np.float32)
        local_change(site, network, weights, (0.1, seed), (1, 32 + seed, 0.1), seed, gradients)
    _, alike = np.unique(np.array(seen), axis=1, return_counts=True)
    assert alike.min() == 10
    assert np.linalg.matrix_rank(np.array(seen, dtype=float)) <= 20


TRAINING = {"local_epochs": 2, "batch_size": 16, "step_size": 0.1, "seed": 5}
COMMON = {"hidden": np.array([4]), "latent": 2, "held_back": 0.2, "split": 7}


@pytest.mark.parametrize("trained", [True, False], ids=["training rows", "rows held back"])
def test_training_and_checks_see_different_rows(trained):
    """Spoil the rows of one kind: training, or the check, must not notice, and the other one must."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(40, 6))
    mask = rows_held_back(fs.Site("a", X), 0.2, 7)
    spoilt = X.copy()
    spoilt[~mask if trained else mask] += 1.0
    weights = autoencoder_network(6, np.array([4]), 2).start(np.random.default_rng(1))
    before, after = (fs.Site("a", rows) for rows in (X, spoilt))
    changes = [ae.local_training(site, weights=weights, **COMMON, **TRAINING) for site in (before, after)]
    checks = [ae.local_loss(site, weights=weights, **COMMON) for site in (before, after)]
    assert np.array_equal(changes[0]["change"], changes[1]["change"]) != trained
    assert (checks[0] == checks[1]) == trained
    assert changes[0]["n"] == 32
    assert checks[0]["n"] == 8


def test_errors_of_rows_held_back():
    X = np.random.default_rng(0).normal(size=(40, 6))
    network = autoencoder_network(6, np.array([4]), 2)
    weights = network.start(np.random.default_rng(1))
    found = ae.local_loss(fs.Site("a", X), weights=weights, **COMMON)
    R = ae.autoencoder_score(X, np.zeros(6), None, weights, np.array([4]), 2)[:, 0] / 6
    R = R[rows_held_back(fs.Site("a", X), 0.2, 7)]
    assert found["loss"] == pytest.approx(R.sum())
    assert found["error"] == pytest.approx(np.sqrt(R).sum())


def test_overfitting_ends_training():
    """Few rows, many weights: the loss in training would fall on, and rows held back end it, which gain nothing."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(24, 8))
    fed = fs.federate(X, sites=np.arange(24) % 2)
    options = {"n_columns": 8, "hidden": (32,), "latent": 6, "held_back": 0.4, "check_every": 1}
    with fed.begin("test", seed=0) as ran:
        found = autoencoder(ran, **options, patience=10)
    assert ran.record.stopped.kind is EndingKind.CONVERGED
    rounds = int(found.history[-1, 0])
    assert rounds < 150
    to_the_end = fed.run(autoencoder, **options, max_rounds=rounds, patience=rounds)
    assert to_the_end.history[-1, 1] < 0.5 * found.history[-1, 1]  # on training rows it was not at an end
    assert to_the_end.history[-1, 3] > 0.97 * found.error  # on others it was


# Whole runs.


@pytest.mark.parametrize("server_momentum", [0.0, 0.5])
def test_one_site_is_plain_training(server_momentum):
    """An independent loop of torch's own SGD on the same batches, site after site and round after round."""
    torch = pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(39, 6)) * [3.0, 2.0, 1.0, 1.0, 0.5, 0.1]
    options = {"hidden": (5,), "latent": 2, "local_epochs": 2, "batch_size": 16, "step_size": 0.2, "held_back": 0.1}
    with fs.LocalFederation([fs.Site("only", X)]).begin("test", seed=3) as ran:
        found = autoencoder(ran, n_columns=6, **options, max_rounds=4, server_momentum=server_momentum, check_every=1)

    rng = generator(3, "coordinator")
    weights = autoencoder_network(6, np.array([5]), 2).start(rng)
    order = np.argsort(block_of_rows(fs.Site("only", X)))  # of so few rows each is a block
    held_back = order[generator(int(rng.integers(2**32)), "only").permutation(39)[:4]]
    rows = torch.tensor(X[order[~np.isin(order, held_back)]].astype(np.float32))
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.LeakyReLU(0.1), torch.nn.Linear(5, 2),
        torch.nn.Linear(2, 5), torch.nn.LeakyReLU(0.1), torch.nn.Linear(5, 6),
    )  # fmt: skip
    velocity, errors = 0.0, []
    for _ in range(4):
        seed = int(rng.integers(2**32))
        rng.choice(1, size=1, replace=False)  # the one site of the round
        torch.nn.utils.vector_to_parameters(torch.tensor(weights), model.parameters())
        optimizer, draw = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), generator(seed, "only")
        for _ in range(2):
            for x in torch.tensor_split(rows[torch.tensor(draw.permutation(35))], 3):
                optimizer.zero_grad()
                ((model(x) - x) ** 2).mean().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        trained = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
        velocity = server_momentum * velocity + (trained - weights)
        weights = (weights + velocity).astype(np.float32)
        torch.nn.utils.vector_to_parameters(torch.tensor(weights), model.parameters())
        with torch.no_grad():
            x = torch.tensor(X[np.sort(held_back)].astype(np.float32))
            errors.append(((model(x) - x) ** 2).mean(dim=1).sqrt().mean().item())
    np.testing.assert_allclose(found.history[1:, 3], errors, rtol=1e-4)
    if np.argmin(errors) == 3:
        np.testing.assert_allclose(found.weights, weights, atol=2e-5)


def spread(n=600, n_sites=6, seed=0):
    """Rows near a curve, dealt to sites by where on it they are."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(-2.0, 2.0, n))[:, None]
    X = np.hstack([t, np.sin(2 * t), np.cos(2 * t), t**2 / 2]) + 0.02 * rng.normal(size=(n, 4))
    return (X - X.mean(axis=0)) / X.std(axis=0), np.arange(n) * n_sites // n


QUICK = {"n_columns": 4, "hidden": (12,), "latent": 1, "max_rounds": 25, "patience": 20, "check_every": 5}


@pytest.mark.parametrize("protocol", [autoencoder, bigan])
def test_learns_from_sites_that_differ(protocol):
    pytest.importorskip("torch")
    X, labels = spread()
    runs = []
    for seed in range(3):
        with fs.federate(X, sites=labels).begin("test", seed=seed) as ran:
            runs.append(protocol(ran, **QUICK))
    assert np.mean([found.error / found.history[0, 3] for found in runs]) < 0.7
    assert max(found.history[-1, 1] / found.history[0, 1] for found in runs) < 0.6


def true_error(network, weights, X):
    encode, decode, *_ = network.functions(weights).values()
    return np.sqrt(np.mean((X - decode(encode(X))) ** 2, axis=1)).mean()


AUTOENCODER, BIGAN = autoencoder_network(4, np.array([12]), 1), bigan_network(4, np.array([12]), 1)


@pytest.mark.parametrize(
    ("protocol", "network", "attack"),
    [
        (autoencoder, AUTOENCODER, attacks.ScaledReverse(1e3)),
        (autoencoder, AUTOENCODER, attacks.RandomNoise(1e6)),
        (bigan, BIGAN, attacks.SignFlip()),
    ],
    ids=["autoencoder, reversed", "autoencoder, noise", "bigan, signs"],
)
def test_an_aggregator_withstands_malicious_sites(protocol, network, attack):
    pytest.importorskip("torch")
    X, _ = spread()
    fed = fs.federate(X, sites=np.arange(len(X)) % 9)
    honest = fed.run(protocol, **QUICK)
    found = fed.corrupt(attack, sites=["2", "5"]).run(protocol, **QUICK, aggregator=CoordinateMedian())
    assert true_error(network, found.weights, X) < 1.5 * true_error(network, honest.weights, X)


def test_without_an_aggregator_malicious_sites_spoil_the_training():
    pytest.importorskip("torch")
    X, _ = spread()
    fed = fs.federate(X, sites=np.arange(len(X)) % 9).corrupt(attacks.ScaledReverse(1e3), sites=["2", "5"])
    try:
        found = fed.run(autoencoder, **QUICK)
    except (InputError, QuorumError):
        return
    assert true_error(AUTOENCODER, found.weights, X) > 0.8


def test_sites_that_come_and_go():
    pytest.importorskip("torch")
    X, labels = spread()
    plan = fs.FaultPlan(seed=2, drop=0.1, nonfinite=0.05, shape=0.05)
    with fs.federate(X, sites=labels, policy=fs.Policy(quorum=1)).with_faults(plan).begin("test", seed=0) as ran:
        found = autoencoder(ran, **QUICK)
    assert ran.record.failures
    assert found.error < 0.7 * found.history[0, 3]


@pytest.mark.parametrize("protocol", [autoencoder, bigan])
@pytest.mark.parametrize("aggregator", [None, GeometricMedian()], ids=repr)
def test_sites_with_few_rows_or_none(protocol, aggregator):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    sizes = {"none": 0, "one": 1, "two": 2, "three": 3, "many": 40}
    fed = fs.LocalFederation([fs.Site(name, rng.normal(size=(n, 4))) for name, n in sizes.items()])
    with fed.begin("test") as ran:
        found = protocol(ran, **{**QUICK, "max_rounds": 5}, aggregator=aggregator)
    assert ran.record.failures == []
    assert np.isfinite(found.weights).all()


@pytest.mark.parametrize("aggregator", [None, GeometricMedian()], ids=repr)
def test_some_site_must_hold_back_a_row(aggregator):
    fed = fs.LocalFederation([fs.Site(str(i), np.ones((1, 4))) for i in range(5)])
    with pytest.raises(InputError, match="no site holds back a row: one site at least must have two rows"):
        fed.run(autoencoder, **QUICK, aggregator=aggregator)


@pytest.mark.parametrize("protocol", [autoencoder, bigan])
def test_the_number_of_threads_changes_nothing(protocol):
    torch = pytest.importorskip("torch")
    X, labels = spread(n=2000, n_sites=2)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(fs.federate(X, sites=labels).run(protocol, **{**QUICK, "max_rounds": 2, "batch_size": 900}))
        finally:
            torch.set_num_threads(1)
    assert found[0].weights.tobytes() == found[1].weights.tobytes()


def test_bytes_of_a_round():
    """Down and up: one float32 per weight for sites that train; down only for those that are checked."""
    pytest.importorskip("torch")
    X, labels = spread()
    with fs.federate(X, sites=labels).begin("test") as ran:
        autoencoder(ran, **{**QUICK, "hidden": (400,), "max_rounds": 1})
    p = autoencoder_network(4, np.array([400]), 1).size
    check, train = ran.record.calls[0], ran.record.calls[1]
    for sizes, weights in ((check.bytes_down, 1), (check.bytes_up, 0), (train.bytes_down, 1), (train.bytes_up, 1)):
        assert all(4 * p * weights <= size < 4 * p * weights + 400 for size in sizes.values())
