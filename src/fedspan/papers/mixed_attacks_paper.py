"""Mixed regression with lying sites, for `fedspan.papers.mixed_regression_paper`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from rich.progress import track

from fedspan.aggregation import Aggregator, GeometricMedian, SpectralFilter, TrimmedMean
from fedspan.attacks import ALittleIsEnough, InnerProduct, Mimic, Ones, RandomNoise, ScaledReverse, SignFlip
from fedspan.engines.local.embedded import federate
from fedspan.errors import FedspanError
from fedspan.federation import Attack, AttackedCall, Federation
from fedspan.linalg import bottleneck_distance
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.cluster_start import Start
from fedspan.mixed_regression.spectral_start import spectral_start
from fedspan.papers.mixed_runs_paper import RAW, D, K, Setting
from fedspan.papers.results_paper import Table


@dataclass(frozen=True)
class Collude:
    """All bad sites send one and the same value, `length` times as long as honest ones are.

    With `claim`, as the first cluster's; with `late`, only in Phase 2.
    """

    claim: bool
    length: float = 1.0
    late: bool = False

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the arrays of the bad sites."""
        written: dict[str, Any] = {site: dict(replies[site]) for site in bad if site in replies}
        if self.late and "part" not in next(iter(replies.values())):
            return written
        for key, value in next(iter(replies.values())).items():
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or (key == "part" and not self.claim):
                continue
            lie = np.eye(len(value))[0] if key == "part" else np.random.default_rng(5).standard_normal(value.shape)
            if key != "part":
                typical = np.median([np.linalg.norm(reply[key]) for reply in replies.values()])
                lie *= self.length * typical / np.linalg.norm(lie)
            for reply in written.values():
                reply[key] = lie
        return written


ATTACKS: dict[str, Attack] = {
    "random": RandomNoise(100.0),
    "huge": Ones(1e300),
    "reverse x10": ScaledReverse(10.0),
    "little is enough": ALittleIsEnough(1.5),
    "inner product": InnerProduct(0.5),
    "sign flip": SignFlip(),
    "mimic": Mimic(),
    "collude": Collude(claim=False),
    "collude in one cluster": Collude(claim=True),
    "push gently in one cluster": Collude(claim=True, length=0.45, late=True),
}


FLIP = "flipped targets"  # not a lie of a reply: such sites follow the protocol with -y
FAKE = "one model of their own"  # nor this: they hold rows of a model of theirs, with the noise of all others
ALL = (*ATTACKS, FLIP, FAKE)
PHASE_ONE = tuple(
    name for name in (*ATTACKS, FLIP) if not name.endswith("in one cluster")
)  # no site claims a cluster there
SEED = 1000
_NOISE = 0.2


def phase_one_table(quick: bool) -> Table:
    """Error of the two starts when a fifth of the sites lies in everything that it sends, under several rules."""
    setting = Setting("C1", SEED)
    rules: dict[str, Aggregator | None] = {"none": None, "GeometricMedian": GeometricMedian()}
    rules |= {"TrimmedMean(50)": TrimmedMean(50), "SpectralFilter": SpectralFilter()}
    starts: dict[str, Callable[..., Start]] = {"moment descent": moment_descent, "spectral": spectral_start}
    bad = _bad(setting, 0.2)
    rows = []
    names = ("random", "collude") if quick else ("none", *PHASE_ONE)
    for name in track(names, description="Phase 1", transient=True):
        attacked = setting.federation if name == "none" else _attacked(setting, name, bad)
        cells = [_start(attacked, start, rule, setting) for start in starts.values() for rule in rules.values()]
        rows.append([name, *cells])
    return Table(
        "Lying sites in Phase 1, C1, 20 %: error of the start, share of sites that its models put right",
        ["attack", *(f"{start}, {rule}" for start in starts for rule in rules)],
        rows,
        f"Seed {SEED}. Every reply of a malicious site is attacked, and such sites may become anchors. Without attacks "
        "starts have an error of about 0.2; below about 0.7 with right labels a refinement ends as if nothing had "
        "been.",
    )


def byzantine_table(quick: bool) -> Table:
    """Error over that of least squares on honest sites, when a part of the sites lies in everything that it sends."""
    rules: dict[str, Aggregator | None] = {"none": None, "GeometricMedian": GeometricMedian()}
    rules |= {"SpectralFilter": SpectralFilter()}
    configurations: Sequence[str] = ["C1"] if quick else ["C1", "C2"]
    parts: Sequence[float] = [0.2] if quick else [0.1, 0.2]
    names: Sequence[str] = ["random", "collude"] if quick else ALL
    rows = []
    for configuration in configurations:
        setting = Setting(configuration, SEED)
        for part in parts:
            bad = _bad(setting, part)
            labels = setting.made.labels.copy()
            labels[bad] = K  # of no cluster
            target = setting.error(setting.stack.fitted(labels, setting.made.coef))
            for name in track(names, description=f"malicious, {configuration}, {part:.0%}", transient=True):
                attacked = _attacked(setting, name, bad)
                cells = [_outcome(attacked, rule, setting, target) for rule in rules.values()]
                rows.append([f"{configuration}, {part:.0%}, {name}", *cells])
            if not quick:
                attacked = _attacked(setting, FAKE, bad)
                cells = [_outcome(attacked, rule, setting, target, clusters=K + 1) for rule in rules.values()]
                rows.append([f"{configuration}, {part:.0%}, {FAKE}, {K + 1} clusters", *cells])
    return Table(
        "Lying sites: error over that of least squares on the honest ones",
        ["configuration, malicious, attack", *rules],
        rows,
        f"Seed {SEED}; spectral start, FedAvg s = 5, n_i / N_j, at most 60 rounds, tol 1e-4; every reply of a "
        "malicious site is attacked. A fifth of the sites that all claim one cluster are 43 % of it. Mimics repeat one "
        "honest site, and cannot be distinguished from honest ones. A gentle push attacks only calls whose single "
        "replies are requested. Sites with flipped targets, or rows of one model of their own, are clusters of their "
        "own, and honest about it: with one cluster more the latter are found.",
    )


def _bad(setting: Setting, part: float) -> Any:
    sites = len(setting.federation.sites)
    return np.random.default_rng(1).choice(sites, int(part * sites), replace=False)


def _attacked(setting: Setting, name: str, bad: Any) -> Federation:
    if name == FLIP:
        signs = np.ones(len(setting.stack.sizes))
        signs[bad] = -1.0
        y = setting.made.y * signs[setting.stack.site_of_row]
        return federate(setting.made.X, y, sites=setting.made.sites, seed=setting.seed)
    if name == FAKE:
        y, rng = setting.made.y.copy(), np.random.default_rng(7)
        rows = np.isin(setting.stack.site_of_row, bad)
        model = rng.standard_normal(D) / np.sqrt(D)
        y[rows] = setting.made.X[rows] @ model + _NOISE * rng.standard_normal(int(rows.sum()))
        return federate(setting.made.X, y, sites=setting.made.sites, seed=setting.seed)
    return setting.federation.corrupt(ATTACKS[name], sites=np.array(setting.federation.sites)[bad].tolist())


def _start(attacked: Federation, start: Callable[..., Start], rule: Aggregator | None, setting: Setting) -> str:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            models = attacked.run(start, n_clusters=K, n_columns=D, aggregator=rule).models
    except FedspanError:
        return "stopped"
    error = setting.error(models)
    return f"{error:.2f} ({setting.accuracy(models):.2f})" if error < 100 else f"{error:.0e}"


def _outcome(attacked: Any, rule: Aggregator | None, setting: Setting, target: float, clusters: int = K) -> str:
    model = FedMixedRegressor(
        clusters, start="spectral", aggregator=rule, acceleration=0, max_rounds=60, tol=1e-4, random_state=0, **RAW
    )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model.fit(attacked)
    except FedspanError as error:
        return "diverged" if "diverged" in str(error) or "overflow" in str(error) else "stopped"
    chosen = (list(some) for some in combinations(range(clusters), K))
    ratio = min(bottleneck_distance(model.coef_[some], setting.made.coef) for some in chosen) / target
    return f"{ratio:.2f}" if ratio < 1e4 else f"{ratio:.0e}"
