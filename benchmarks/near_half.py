"""Malicious sites from a tenth to nearly half: the error, in units of the median honest site's own.

Nineteen sites of equal size. The worst of nine attacks, by name, and what `Mimic` does, as medians of two draws of the
data. A site's own error is that of a fit to its rows alone. In mixed regression each of the two models has nineteen
sites, with as many malicious ones.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian, MajorityMean, Mean, SpectralFilter
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.datasets import make_few_shot_tasks, make_subspace_sites
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.linalg import subspace_distance

SITES, DRAWS = 19, (4, 5)
MALICIOUS = (2, 4, 6, 8, 9)
BASELINES = ("resilient_power", "resilient_covariance")


class NearlyMimic(attacks.Mimic):
    """Copies with a little noise each, so that no two replies are equal."""

    def corrupted(self, seen: Any, rng: np.random.Generator) -> Any:
        """Return the copied value with noise."""
        copied = super().corrupted(seen, rng)
        return copied * (1 + 1e-3 * rng.standard_normal((len(seen.bad), *copied.shape[1:])))


ATTACKS = {
    "mimic": attacks.Mimic(),
    "nearly mimic": NearlyMimic(),
    "sign flip": attacks.SignFlip(),
    "reverse": attacks.ScaledReverse(10.0),
    "a little": attacks.ALittleIsEnough(1.5),
    "inner product": attacks.InnerProduct(0.5),
    "noise": attacks.RandomNoise(100.0),
    "zeros": attacks.Ones(0.0),
    "1e300": attacks.Ones(1e300),
}


def subspaces(
    seed: int, spike: float = 4.0, rows: int = 60
) -> tuple[fs.Federation, Callable[[fs.Federation, Any], float], float]:
    """Principal subspaces: 19 sites of 60 rows, 50 columns, three directions."""
    made = make_subspace_sites(50, 3, SITES, rows, spike=spike, tail=1.0, seed=seed)
    fed = fs.federate(made.X, sites=made.sites, seed=1)

    def error(view: fs.Federation, settings: Any) -> float:
        found = fs.FedPCA(3, **{"solver": "subspace_median"} | settings, center=False).fit(view)
        return float(subspace_distance(found.components_.T, made.basis))

    return fed, error, _own(fed, lambda view: error(view, {}))


def near_subspaces(seed: int) -> tuple[fs.Federation, Callable[[fs.Federation, Any], float], float]:
    """Return the same with 200 rows a site and clearer directions: honest sites differ little."""
    return subspaces(seed, 40.0, 200)


def centres(seed: int) -> tuple[fs.Federation, Callable[[fs.Federation, Any], float], float]:
    """Centres of k-means: 19 sites of 60 rows, five columns, four clusters."""
    rng = np.random.default_rng(seed)
    truth = 8.0 * rng.standard_normal((4, 5))
    X = truth[rng.integers(4, size=60 * SITES)] + rng.standard_normal((60 * SITES, 5))
    fed = fs.federate(X, sites=np.arange(60 * SITES) % SITES, seed=1)

    def error(view: fs.Federation, rule: Any) -> float:
        found = view.run(federated_k_means, n_clusters=4, n_init=5, aggregator=rule).best().centres
        return float(np.linalg.norm(found[:, None] - truth, axis=2).min(axis=0).max())

    return fed, error, _own(fed, lambda view: error(view, None))


def few_shot(seed: int) -> tuple[fs.Federation, Callable[[fs.Federation, Any], float], float]:
    """Few-shot learning: 19 sites with six rows of each of 40 tasks, 20 columns, rank 2, noise 0.5."""
    made = make_few_shot_tasks(20, 40, 2, 6 * SITES, SITES, noise=0.5, seed=seed)
    fed = fs.federate(made.X, made.y, sites=made.sites, task=made.task, seed=1)

    def error(view: fs.Federation, rule: Any) -> float:
        found = view.run(byz_altgdmin, rank=2, n_columns=20, iterations=30, aggregator=rule)
        return float(subspace_distance(found.basis, made.basis))

    return fed, error, _own(fed, lambda view: error(view, Mean()))


def mixture(seed: int) -> tuple[fs.Federation, Callable[[fs.Federation, Any], float], float]:
    """Mixed regression: two models, 19 sites of 100 rows each, ten columns, noise 0.5."""
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((2, 10))
    X = rng.standard_normal((2 * SITES, 100, 10))
    label = np.arange(2 * SITES) % 2
    y = np.einsum("smd,sd->sm", X, models[label]) + 0.5 * rng.standard_normal((2 * SITES, 100))
    fed = fs.LocalFederation([fs.Site(f"s{i:02d}", X[i], y[i]) for i in range(2 * SITES)], seed=1)

    def error(view: fs.Federation, rule: Any) -> float:
        found = fs.FedMixedRegressor(2, aggregator=rule, fit_intercept=False, random_state=0).fit(view).coef_
        apart = np.linalg.norm(found[:, None] - models[None], axis=2)
        return float(min(apart[[0, 1], [0, 1]].max(), apart[[0, 1], [1, 0]].max()))

    own = [np.linalg.norm(np.linalg.lstsq(X[i], y[i])[0] - models[label[i]]) for i in range(2 * SITES)]
    return fed, error, float(np.median(own))


def _own(fed: fs.Federation, error: Callable[[fs.Federation], float]) -> float:
    return float(np.median([error(fed.subset([site])) for site in fed.sites[:9]]))


SETTINGS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "subspace median": (subspaces, {"trimmed": {}, "eigenspace": {"output": "eigenspace"}}),
    "baselines": (subspaces, {name: {"solver": name} for name in BASELINES}),
    "baselines, honest sites alike": (near_subspaces, {name: {"solver": name} for name in BASELINES}),
    "k-means": (centres, {"CoordinateMedian": CoordinateMedian(), "GeometricMedian": GeometricMedian()}),
    "few-shot": (few_shot, {"GeometricMedian": GeometricMedian(), "MajorityMean": MajorityMean()}),
    "mixed regression": (mixture, {"GeometricMedian": GeometricMedian(), "SpectralFilter": SpectralFilter()}),
}


def main() -> None:
    """Print the table of each setting, or of those that ``python -m benchmarks.near_half NAME ...`` names."""
    warnings.simplefilter("ignore")
    chosen = [name for name in SETTINGS if name in sys.argv] or list(SETTINGS)
    print(f"| | | 0 | {' | '.join(map(str, MALICIOUS))} |\n|---|---|{'---|' * (len(MALICIOUS) + 1)}")
    for name in chosen:
        make, rules = SETTINGS[name]
        made = [make(seed) for seed in DRAWS]
        for rule, setting in rules.items():
            clean = np.median([error(fed, setting) / own for fed, error, own in made])
            table = {
                attack: [np.median([_under(one, setting, attack, m) for one in made]) for m in MALICIOUS]
                for attack in ATTACKS
            }
            worst = [max(table, key=lambda attack: table[attack][i]) for i in range(len(MALICIOUS))]
            cells = [f"{table[attack][i]:.2f} ({attack})" for i, attack in enumerate(worst)]
            print(f"| {name}, {rule} | worst | {clean:.2f} | {' | '.join(cells)} |", flush=True)
            print(f"| | mimic | | {' | '.join(f'{value:.2f}' for value in table['mimic'])} |", flush=True)


def _under(one: Any, setting: Any, attack: str, malicious: int) -> float:
    fed, error, own = one
    step = len(fed.sites) // SITES
    places = np.linspace(0, SITES - 1, malicious).round().astype(int)
    bad = [fed.sites[step * place + j] for place in places for j in range(step)]
    try:
        return float(error(fed.corrupt(ATTACKS[attack], sites=bad), setting) / own)
    except fs.errors.FedspanError:
        return np.inf


if __name__ == "__main__":
    main()
