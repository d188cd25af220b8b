"""What goes beyond the paper's figures: new clients, missed clusters, traffic, perturbation, liars, a real table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import track

from fedspan.aggregation import Aggregator, GeometricMedian, SpectralFilter
from fedspan.attacks import ALittleIsEnough, InnerProduct, Mimic, RandomNoise, ScaledReverse, SignFlip
from fedspan.datasets import load_mice_protein, make_mixed_regression
from fedspan.engines.local import federate
from fedspan.errors import DataMissingError, FedspanError
from fedspan.estimators.mixed_regressor import FedMixedRegressor
from fedspan.federation import Attack, AttackedCall
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.protocols.moment_descent import CLEAR, moment_descent
from fedspan.reproduce.mixed_runs import Setting, many
from fedspan.reproduce.results import Table

RAW: dict[str, Any] = {"scaling": "none", "fit_intercept": False}


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


def new_clients(seeds: Sequence[int], draws: int) -> Table:
    """How surely and how rightly a new client of C3 is assigned, by its number of rows."""
    right: dict[int, list[bool]] = {n: [] for n in (1, 2, 3, 5)}
    sure: dict[int, list[float]] = {n: [] for n in right}
    for seed in track(seeds, description="new clients", transient=True):
        made = make_mixed_regression("C3", seed=seed)
        model = FedMixedRegressor(3, start="spectral", update="exact", random_state=0, **RAW)
        model.fit(made.X, made.y, sites=made.sites)
        order = [int(np.argmin(np.linalg.norm(model.coef_ - theta, axis=1))) for theta in made.coef]
        rng = np.random.default_rng(seed)
        for n, hits in right.items():
            for _ in range(draws):
                j = int(rng.choice(3, p=made.proportions))
                X = rng.standard_normal((n, 100))
                found = model.assign(X, X @ made.coef[j] + 0.2 * rng.standard_normal(n))
                hits.append(found.label == order[j])
                sure[n].append(found.confidence)
    return Table(
        "C3: the cluster of a new client",
        ["rows of the client", "right", "mean confidence"],
        [[f"{n}", f"{np.mean(right[n]):.4f}", f"{np.mean(sure[n]):.4f}"] for n in right],
        f"{len(seeds)} fits, {draws} clients each and number of rows, drawn with the shares 0.2, 0.3, 0.5.",
    )


def missed_clusters(seeds: Sequence[int]) -> Table:
    """Ten anchors as in the paper: how often they miss a cluster, whether that is seen, and what comes of it."""
    missed = seen = false_alarm = mended = found_all = 0
    for seed in track(seeds, description="missed clusters", transient=True):
        made = make_mixed_regression(
            sizes=np.repeat([10, 30], [200, 60]), proportions=[0.2, 0.3, 0.5], n_features=30, seed=seed
        )
        fed = federate(made.X, made.y, sites=made.sites, seed=seed)
        with fed.begin("anchors") as run:  # p_min such that ten are taken at first
            start = moment_descent(run, n_clusters=3, n_columns=30, p_min=np.log(3 / 0.001) / 10.0)
        names = np.unique(made.sites)
        first = [int(made.labels[np.searchsorted(names, name)]) for name in start.anchors[:10]]
        short = len(set(first)) < 3
        alarm = not (run.record.metric("covered")[0] and run.record.metric("gap")[0] >= CLEAR)
        stack = SiteStack(made.X, made.y, np.unique(made.sites, return_counts=True)[1])
        models = start.models
        for _ in range(30):
            models = stack.fitted(stack.labels(models), models)
        good = matched_share(stack.labels(models), made.labels) > 0.99
        missed += short
        seen += short and alarm
        false_alarm += alarm and not short
        mended += short and good
        found_all += good
    rows = [
        ["runs", f"{len(seeds)}"],
        ["the first ten anchors miss a cluster", f"{missed}"],
        ["... seen by the linkage gap or the losses", f"{seen} of {missed}"],
        ["... and all clusters found in the end", f"{mended} of {missed}"],
        ["looked twice although none was missed", f"{false_alarm}"],
        ["all clusters found", f"{found_all} of {len(seeds)}"],
    ]
    return Table(
        "Anchors that miss a cluster",
        ["260 sites of 10 or 30 rows, d = 30, clusters 0.2, 0.3, 0.5", ""],
        rows,
        "Ten anchors at first, the number that ceil(3 k log k) gives; more are taken where the gap is below "
        f"{CLEAR:g} and the losses of all sites say that some fit none of the models.",
    )


def traffic_table(configuration: str = "C2") -> Table:
    """Bytes, calls and rounds of whole fits."""
    made = make_mixed_regression(configuration, seed=100)  # type: ignore[arg-type]
    stack = SiteStack(made.X, made.y, np.unique(made.sites, return_counts=True)[1])
    ols = bottleneck_distance(stack.fitted(made.labels, made.coef), made.coef)
    cases: dict[str, dict[str, Any]] = {
        "moment descent, FedAvg s = 5": {},
        "spectral, FedAvg s = 5": {"start": "spectral"},
        "spectral, FedAvg s = 5, not extrapolated": {"start": "spectral", "acceleration": 0},
        "spectral, one step of size 1": {"start": "spectral", "local_steps": 1, "step_size": 1.0},
        "spectral, exact": {"start": "spectral", "update": "exact"},
        "spectral, FedAvg s = 5, whitened with intercept": {"start": "spectral"},
    }
    rows = []
    for name, options in track(cases.items(), description="traffic", transient=True):
        settings = options if "whitened" in name else {**RAW, **options}
        model = FedMixedRegressor(3, random_state=0, **settings).fit(made.X, made.y, sites=made.sites)
        record, sites = model.run_, len(model.sites_)
        rows.append(
            [
                name,
                f"{len(record.calls)}",
                f"{model.n_iter_}",
                f"{record.bytes_up / sites / 1e3:.0f}",
                f"{record.bytes_down / sites / 1e3:.0f}",
                f"{bottleneck_distance(model.coef_, made.coef) / ols:.3f}",
            ]
        )
    return Table(
        f"{configuration}: traffic of whole fits",
        ["fit", "calls", "rounds", "kB up per site", "kB down per site", "error / OLS"],
        rows,
        "Seed 100, tol 1e-6. Features as they are but in the last row, where the covariance of all rows is asked for.",
    )


def perturbation_table(seeds: Sequence[int]) -> Table:
    """Remark 2: how much noise on the models that sites see the start bears."""
    lengths = (0.0, 0.25, 0.5, 1.0, 2.0)
    errors: dict[float, list[float]] = {length: [] for length in lengths}
    for seed in track(seeds, description="perturbation", transient=True):
        setting = Setting("C1", seed)
        for length in lengths:
            errors[length].append(setting.error(setting.start("moment descent", perturbation=length).models))
    return Table(
        "C1: perturbed models (Remark 2)",
        ["length of the noise", "start error, mean", "largest"],
        [[f"{length:g}", f"{np.mean(e):.3f}", f"{np.max(e):.3f}"] for length, e in errors.items()],
        f"{many(len(seeds))}. Two independent perturbations for every site; models have a length of about 1. No "
        "account of privacy is made of this.",
    )


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


def mice_table() -> Table:
    """Fit a real table: levels of a protein given eight others, in 72 mice of which the models know nothing else."""
    title = "Mice protein expression: 72 mice as sites, 15 rows each"
    columns = ["clusters", "R2 on rows held back", "noise", "mice in the group of their behaviour"]
    try:
        mice = load_mice_protein(missing="mean")
    except DataMissingError as error:
        return Table(title, columns, [], f"Not run: {error}")
    names = mice.feature_names.tolist()
    chosen = ("ITSN1_N", "BDNF_N", "pAKT_N", "BRAF_N", "CREB_N", "MEK_N", "TIAM1_N", "P70S6_N")
    X, y = np.log(mice.data[:, [names.index(name) for name in chosen]]), np.log(mice.data[:, names.index("SOD1_N")])
    test = np.zeros(len(y), dtype=bool)
    for mouse in np.unique(mice.mouse_id):
        test[np.flatnonzero(mice.mouse_id == mouse)[2::3]] = True
    rows = []
    for k in (1, 2, 3, "auto"):
        model = FedMixedRegressor(k, start="spectral", update="exact", random_state=0)
        model.fit(X[~test], y[~test], sites=mice.mouse_id[~test])
        behaviour = [mice.behavior[mice.mouse_id == name][0] for name in model.sites_]
        errors = y[test] - model.predict(X[test], site=mice.mouse_id[test])
        score = 1.0 - float(errors @ errors) / float(np.sum((y[test] - y[test].mean()) ** 2))
        groups = f"{matched_share(model.labels_, behaviour):.3f}" if model.n_clusters_ == 2 else ""
        shown = f"auto: {model.n_clusters_}" if k == "auto" else f"{k}"
        rows.append([shown, f"{score:.3f}", ", ".join(f"{noise:.3f}" for noise in model.noise_), groups])
    return Table(
        title,
        columns,
        rows,
        "log SOD1 from the logarithms of eight proteins; every third row of each mouse held back (rows of a mouse "
        "repeat one measurement). The mice of two clusters are compared with the two behaviours (context-shock or "
        "shock-context), which no model saw. Missing values are column means.",
    )
