"""Mixed regression with Byzantine sites, for `fedspan.papers.mixed_regression_paper`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fedspan.aggregation import Aggregator, GeometricMedian, SpectralFilter, TrimmedMean
from fedspan.attacks import InnerProduct, Ones
from fedspan.engines.local.embedded import federate
from fedspan.errors import FedspanError
from fedspan.federation import Attack, Federation
from fedspan.linalg import bottleneck_distance
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.cluster_start import Start
from fedspan.mixed_regression.spectral_start import spectral_start
from fedspan.papers.attacks_paper import KNOWN_ATTACKS, Collude
from fedspan.papers.mixed_runs_paper import RAW, D, K, MixedSetting
from fedspan.papers.results_paper import Table

Sites = NDArray[np.intp]

#: Attacks on every reply. In Phase 1 no site claims a cluster.
PHASE_ONE: dict[str, Attack] = {
    "huge": Ones(1e300),
    **KNOWN_ATTACKS,
    "inner product": InnerProduct(0.5),
    "collude": Collude(claim=False),
}
ATTACKS: dict[str, Attack] = {
    **PHASE_ONE,
    "collude in one cluster": Collude(claim=True),
    "push gently in one cluster": Collude(claim=True, length=0.45, late=True),
    "collude in one cluster, nearly": Collude(claim=True, spread=1e-3),
    "push gently in one cluster, nearly": Collude(claim=True, length=0.45, late=True, spread=1e-3),
}
FLIP = "flipped targets"  # no attack on replies: such sites follow the protocol with -y
FAKE = "one model of their own"  # nor this: their rows follow a model of their own, with the noise of all others
QUICK = ("random x100", "collude")
SEED = 1000
RULES: dict[str, Aggregator | None] = {"none": None, "GeometricMedian": GeometricMedian()}
FILTER: dict[str, Aggregator | None] = {"SpectralFilter": SpectralFilter()}
_NOISE = 0.2


def phase_one_table(quick: bool) -> Table:
    """Return the error of the two starts when a fifth of the sites attacks every reply, under several rules."""
    setting = MixedSetting("C1", SEED)
    rules = {**RULES, "TrimmedMean(50)": TrimmedMean(50), **FILTER}
    starts: dict[str, Callable[..., Start]] = {"moment descent": moment_descent, "spectral": spectral_start}
    bad = _bad(setting, 0.2)
    rows = []
    for name in track(QUICK if quick else ("no attack", *PHASE_ONE, FLIP), description="Phase 1", transient=True):
        attacked = setting.federation if name == "no attack" else _attacked(setting, name, bad)
        cells = [_start(attacked, start, rule, setting) for start in starts.values() for rule in rules.values()]
        rows.append([name, *cells])
    return Table(
        "Byzantine sites in Phase 1, C1, 20 %: error of the start, share of sites that its models put right",
        ["attack", *(f"{start}, {rule}" for start in starts for rule in rules)],
        rows,
        f"Seed {SEED}. Every reply of a Byzantine site is attacked, and such sites may become anchors. Without attack "
        "starts have an error of about 0.2; below about 0.7 with right labels the refinement ends as without attack.",
    )


def byzantine_table(quick: bool) -> Table:
    """Return the error over that of least squares on honest sites, when some sites attack every reply."""
    rules = {**RULES, **FILTER}
    rows = []
    for configuration, share in [("C1", 0.2)] if quick else [(c, s) for c in ("C1", "C2") for s in (0.1, 0.2)]:
        setting = MixedSetting(configuration, SEED)
        bad = _bad(setting, share)
        labels = setting.made.labels.copy()
        labels[bad] = K  # of no cluster
        target = setting.error(setting.stack.fitted(labels, setting.made.coef))
        cases = [(name, K) for name in (QUICK if quick else (*ATTACKS, FLIP, FAKE))]
        cases += [] if quick else [(FAKE, K + 1)]
        for name, clusters in track(cases, description=f"attacks, {configuration}, {share:.0%}", transient=True):
            attacked = _attacked(setting, name, bad)
            cells = [_outcome(attacked, rule, setting, target, clusters) for rule in rules.values()]
            more = f", {clusters} clusters" if clusters > K else ""
            rows.append([f"{configuration}, {share:.0%}, {name}{more}", *cells])
    return Table(
        "Byzantine sites: error over that of least squares on the honest ones",
        ["configuration, Byzantine sites, attack", *rules],
        rows,
        f"Seed {SEED}; spectral start, FedAvg s = 5, n_i / N_j, at most 60 rounds, tol 1e-4; every reply of a "
        "Byzantine site is attacked. A fifth of the sites that all claim one cluster are 43 % of it. Mimics repeat one "
        "honest site, and look like honest ones. Sites that push gently attack only single replies. Sites "
        "with flipped targets, or rows of one model of their own, are clusters of their own, and honest about it: with "
        "one cluster more the latter are found.",
    )


def _bad(setting: MixedSetting, share: float) -> Sites:
    sites = len(setting.federation.sites)
    return np.random.default_rng(1).choice(sites, int(share * sites), replace=False)


def _attacked(setting: MixedSetting, name: str, bad: Sites) -> Federation:
    made = setting.made
    if name in ATTACKS:
        return setting.federation.corrupt(ATTACKS[name], sites=np.array(setting.federation.sites)[bad].tolist())
    rows, y = np.isin(setting.stack.site_of_row, bad), made.y.copy()
    if name == FLIP:
        y[rows] *= -1.0
    else:
        rng = np.random.default_rng(7)
        model = rng.standard_normal(D) / np.sqrt(D)
        y[rows] = made.X[rows] @ model + _NOISE * rng.standard_normal(int(rows.sum()))
    return federate(made.X, y, sites=made.sites, seed=setting.seed)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _start(attacked: Federation, start: Callable[..., Start], rule: Aggregator | None, setting: MixedSetting) -> str:
    try:
        with _quiet():
            models = attacked.run(start, n_clusters=K, n_columns=D, aggregator=rule).models
    except FedspanError:
        return "stopped"
    error = setting.error(models)
    return f"{error:.2f} ({setting.accuracy(models):.2f})" if error < 100 else f"{error:.0e}"


def _outcome(attacked: Federation, rule: Aggregator | None, setting: MixedSetting, target: float, clusters: int) -> str:
    options = {"acceleration": 0, "max_rounds": 60, "tol": 1e-4, "random_state": 0, **RAW}
    model = FedMixedRegressor(clusters, start="spectral", aggregator=rule, **options)
    try:
        with _quiet():
            model.fit(attacked)
    except FedspanError:
        return "stopped"
    chosen = (list(some) for some in combinations(range(clusters), K))
    ratio = min(bottleneck_distance(model.coef_[some], setting.made.coef) for some in chosen) / target
    return f"{ratio:.2f}" if ratio < 1e4 else f"{ratio:.0e}"
