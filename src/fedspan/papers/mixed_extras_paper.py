"""What goes beyond the paper's figures: new clients, missed clusters, traffic, perturbation, harder and real data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.progress import track

from fedspan.datasets import load_mice_protein, make_mixed_regression
from fedspan.engines.local.embedded import federate
from fedspan.errors import DataMissingError
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.mixed_regression.moment_descent import CLEAR, moment_descent
from fedspan.mixed_regression.parts.feature_preparation import polynomial
from fedspan.papers.mixed_runs_paper import RAW, Setting
from fedspan.papers.results_paper import Table, counted


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
        f"{counted(seeds)} ({seeds[0]} on), {draws} clients for each number of rows, shares 0.2, 0.3, 0.5.",
    )


def missed_clusters(seeds: Sequence[int]) -> Table:
    """Ten anchors as in the paper: how often they miss a cluster, whether that is seen, and what comes of it."""
    missed = seen = false_alarm = repaired = found_all = 0
    for seed in track(seeds, description="missed clusters", transient=True):
        made = make_mixed_regression(
            sizes=np.repeat([10, 30], [200, 60]), proportions=[0.2, 0.3, 0.5], n_features=30, seed=seed
        )
        fed = federate(made.X, made.y, sites=made.sites, seed=seed)
        with fed.begin("anchors") as run:  # miss such that ten are taken at first
            start = moment_descent(run, n_clusters=3, n_columns=30, p_min=0.2, miss=3.0 * np.exp(-2.0))
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
        repaired += short and good
        found_all += good
    rows = [
        ["runs", f"{len(seeds)}"],
        ["the first ten anchors miss a cluster", f"{missed}"],
        ["... seen by the linkage gap or the losses", f"{seen} of {missed}"],
        ["... and all clusters found in the end", f"{repaired} of {missed}"],
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
    made = make_mixed_regression(configuration, seed=1000)  # type: ignore[arg-type]
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
        "Seed 1000, tol 1e-6. Features as they are but in the last row, where the covariance of all rows is asked for.",
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
        f"{counted(seeds)}. Two independent perturbations for every site; models have a length of about 1. No "
        "account of privacy is made of this.",
    )


def hard_cases(seeds: Sequence[int]) -> Table:
    """Fit clusters with covariances of their own, and many clients of two rows with polynomial features."""
    fits: dict[str, dict[str, Any]] = {
        "default": {},
        "spectral, exact": {"start": "spectral", "update": "exact"},
        "spectral, exact, soft": {"start": "spectral", "update": "exact", "assignment": "soft", "tol": 1e-4},
        "number of clusters found": {"start": "spectral", "update": "exact"},
    }
    rows = []
    for case, make in (("five covariances", _five_covariances), ("two rows, polynomials", _two_rows)):
        found: dict[str, list[list[float]]] = {name: [] for name in fits}
        for seed in track(seeds, description=case, transient=True):
            X, y, sites, labels, truth, features, options = make(seed)
            row = np.searchsorted(np.unique(sites), sites)
            ols = [_least_squares(features[labels[row] == j], y[labels[row] == j]) for j in range(len(truth))]
            target = bottleneck_distance(ols, truth)
            for name, settings in fits.items():
                k = "auto" if name.startswith("number") else len(truth)
                model = FedMixedRegressor(k, random_state=0, **options, **settings).fit(X, y, sites=sites)
                right = model.n_clusters_ == len(truth)
                error = bottleneck_distance(model.coef_, truth) / target if right else np.nan
                sure = float(model.proba_.max(axis=1).mean())
                found[name].append([error, matched_share(model.labels_, labels), sure, float(right)])
        for name, entries in found.items():
            error, share, sure, right = np.array(entries).T
            cells = [
                f"{np.nanmedian(error):.3f}",
                f"{np.nanmax(error):.3f}",
                f"{share.mean():.4f}",
                f"{sure.mean():.4f}",
            ]
            rows.append([f"{case}: {name}", *cells, f"{right.sum():.0f} of {len(seeds)}"])
    return Table(
        "Harder data: error over that of least squares with true labels",
        ["data: fit", "median", "largest", "labels", "mean confidence", "right number of clusters"],
        rows,
        f"{counted(seeds)}. Five covariances: k = 5, d = 30, eigenvalues of each cluster spread by 20, 250 "
        "sites of 8 rows and 25 of 40. Two rows: 900 sites of 2 rows and 20 of 50, five columns with all their squares "
        "and products, k = 3. Noise 0.2.",
    )


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


def _five_covariances(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    k, d, sizes = 5, 30, np.repeat([8, 40], [250, 25])
    truth, labels = rng.standard_normal((k, d)) / np.sqrt(d), rng.integers(k, size=len(sizes))
    spread = np.sqrt(20.0)
    shapes = []
    for _ in range(k):
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        shapes.append(axes * np.sqrt(np.exp(rng.uniform(-np.log(spread), np.log(spread), d))))
    X = np.concatenate([rng.standard_normal((n, d)) @ shapes[z].T for n, z in zip(sizes, labels, strict=True)])
    y = np.einsum("nd,nd->n", X, truth[np.repeat(labels, sizes)]) + 0.2 * rng.standard_normal(len(X))
    return X, y, _names(sizes), labels, truth, X, {}


def _two_rows(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    k, sizes = 3, np.repeat([2, 50], [900, 20])
    labels = rng.integers(k, size=len(sizes))
    X = rng.standard_normal((int(sizes.sum()), 5))
    phi = polynomial(X, degree=2, interactions=False)
    truth = 1.5 * rng.standard_normal((k, phi.shape[1])) / np.sqrt(phi.shape[1])
    y = np.einsum("nd,nd->n", phi, truth[np.repeat(labels, sizes)]) + 0.2 * rng.standard_normal(len(X))
    return X, y, _names(sizes), labels, truth, phi, {"features": "polynomial"}


def _names(sizes: Any) -> Any:
    return np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes)


def _least_squares(X: Any, y: Any) -> Any:
    return np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0][:-1]
