"""Mixed regression with lying sites, for `fedspan.reproduce.mixed_regression`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import track

from fedspan.aggregation import Aggregator, GeometricMedian, SpectralFilter
from fedspan.attacks import ALittleIsEnough, InnerProduct, Mimic, RandomNoise, ScaledReverse, SignFlip
from fedspan.errors import FedspanError
from fedspan.estimators.mixed_regressor import FedMixedRegressor
from fedspan.federation import Attack, AttackedCall
from fedspan.linalg import bottleneck_distance
from fedspan.reproduce.mixed_runs import RAW, Setting
from fedspan.reproduce.results import Table


@dataclass(frozen=True)
class Collude:
    """All bad sites send one and the same value, as long as honest ones are; with `claim`, as the first cluster's."""

    claim: bool

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the arrays of the bad sites."""
        written: dict[str, Any] = {site: dict(replies[site]) for site in bad if site in replies}
        for key, value in next(iter(replies.values())).items():
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or (key == "part" and not self.claim):
                continue
            lie = np.eye(len(value))[0] if key == "part" else np.random.default_rng(5).standard_normal(value.shape)
            if key != "part":
                lie *= np.median([np.linalg.norm(reply[key]) for reply in replies.values()]) / np.linalg.norm(lie)
            for reply in written.values():
                reply[key] = lie
        return written


ATTACKS: dict[str, Attack] = {
    "random": RandomNoise(100.0),
    "reverse x10": ScaledReverse(10.0),
    "little is enough": ALittleIsEnough(1.5),
    "inner product": InnerProduct(0.5),
    "sign flip": SignFlip(),
    "mimic": Mimic(),
    "collude": Collude(claim=False),
    "collude in one cluster": Collude(claim=True),
}


def byzantine_table(quick: bool) -> Table:
    """Error over that of least squares on honest sites, when a part of the sites lies in everything that it sends."""
    rules: dict[str, Aggregator | None] = {"none": None, "GeometricMedian": GeometricMedian()}
    rules |= {"SpectralFilter": SpectralFilter()}
    configurations, parts, names = ["C1", "C2"], [0.1, 0.2], list(ATTACKS)
    if quick:
        configurations, parts, names = ["C1"], [0.2], ["random", "collude"]
    rows = []
    for configuration in configurations:
        setting = Setting(configuration, 100)
        sites = np.array(setting.federation.sites)
        for part in parts:
            bad = np.random.default_rng(1).choice(len(sites), int(part * len(sites)), replace=False)
            labels = setting.made.labels.copy()
            labels[bad] = 3  # of no cluster
            target = setting.error(setting.stack.fitted(labels, setting.made.coef))
            for name in track(names, description=f"liars, {configuration}, {part:.0%}", transient=True):
                attacked = setting.federation.corrupt(ATTACKS[name], sites=sites[bad].tolist())
                cells = [_outcome(attacked, rule, setting, target) for rule in rules.values()]
                rows.append([f"{configuration}, {part:.0%}, {name}", *cells])
    return Table(
        "Lying sites: error over that of least squares on the honest ones",
        ["configuration, liars, attack", *rules],
        rows,
        "Seed 100; spectral start, FedAvg s = 5, n_i / N_j, at most 60 rounds, tol 1e-4; every reply of a liar is "
        "attacked. A fifth of the sites that all claim one cluster are 43 % of it. Mimics repeat one honest site, and "
        "cannot be told from honest ones.",
    )


def _outcome(attacked: Any, rule: Aggregator | None, setting: Setting, target: float) -> str:
    model = FedMixedRegressor(
        3, start="spectral", aggregator=rule, acceleration=0, max_rounds=60, tol=1e-4, random_state=0, **RAW
    )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model.fit(attacked)
    except FedspanError as error:
        return "diverged" if "diverged" in str(error) or "overflow" in str(error) else type(error).__name__
    ratio = bottleneck_distance(model.coef_, setting.made.coef) / target
    return f"{ratio:.2f}" if ratio < 1e4 else f"{ratio:.0e}"
