"""What goes beyond the paper's figures: new clients, missed clusters, traffic, perturbation, harder and real data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fedspan.arrays import Matrix
from fedspan.datasets import load_mice_protein, make_mixed_regression
from fedspan.engines.local.embedded import federate
from fedspan.errors import DataMissingError
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.mixed_regression.moment_descent import CLEAR, moment_descent
from fedspan.mixed_regression.parts.feature_preparation import polynomial
from fedspan.papers.mixed_runs_paper import RAW, MixedSetting
from fedspan.papers.results_paper import Table, counted

EXACT: dict[str, Any] = {"start": "spectral", "update": "exact"}
MICE = ["ITSN1_N", "BDNF_N", "pAKT_N", "BRAF_N", "CREB_N", "MEK_N", "TIAM1_N", "P70S6_N"]  # proteins that predict SOD1


def new_clients(seeds: Sequence[int], draws: int) -> Table:
    """Return how often a new client of C3 is assigned rightly, and how confidently, by its number of rows."""
    right: dict[int, list[bool]] = {n: [] for n in (1, 2, 3, 5)}
    sure: dict[int, list[float]] = {n: [] for n in right}
    for seed in track(seeds, description="new clients", transient=True):
        made = make_mixed_regression("C3", seed=seed)
        model = FedMixedRegressor(3, random_state=0, **EXACT, **RAW).fit(made.X, made.y, sites=made.sites)
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
    """Return how often ten anchors, as in the paper, miss a cluster, whether the start notices, and the outcome."""
    count: Counter[str] = Counter()
    for seed in track(seeds, description="missed clusters", transient=True):
        sizes = np.repeat([10, 30], [200, 60])
        made = make_mixed_regression(sizes=sizes, proportions=[0.2, 0.3, 0.5], n_features=30, seed=seed)
        fed = federate(made.X, made.y, sites=made.sites, seed=seed)
        with fed.begin("anchors") as run:  # miss such that ten are taken at first
            start = moment_descent(run, n_clusters=3, n_columns=30, p_min=0.2, miss=3.0 * np.exp(-2.0))
        names, rows = np.unique(made.sites, return_counts=True)
        missed = len(set(made.labels[np.searchsorted(names, start.anchors[:10])].tolist())) < 3
        alarm = not (run.record.metric("covered")[0] and run.record.metric("gap")[0] >= CLEAR)
        stack, models = SiteStack(made.X, made.y, rows), start.models
        for _ in range(30):
            models = stack.fitted(stack.labels(models), models)
        good = matched_share(stack.labels(models), made.labels) > 0.99
        count.update(missed=missed, seen=missed and alarm, false=alarm and not missed)
        count.update(repaired=missed and good, found=good)
    rows_of_table = [
        ["runs", f"{len(seeds)}"],
        ["the first ten anchors miss a cluster", f"{count['missed']}"],
        ["... seen by the linkage gap or the losses", f"{count['seen']} of {count['missed']}"],
        ["... and all clusters found in the end", f"{count['repaired']} of {count['missed']}"],
        ["more anchors taken although no cluster was missed", f"{count['false']}"],
        ["all clusters found", f"{count['found']} of {len(seeds)}"],
    ]
    return Table(
        "Anchors that miss a cluster",
        ["260 sites of 10 or 30 rows, d = 30, clusters 0.2, 0.3, 0.5", ""],
        rows_of_table,
        "Ten anchors at first, the number that ceil(3 k log k) gives; more are taken where the gap is below "
        f"{CLEAR:g} and the losses of all sites show that some fit none of the models.",
    )


def traffic_table(configuration: str = "C2") -> Table:
    """Return bytes, calls and rounds of whole fits."""
    setting = MixedSetting(configuration, 1000)
    made = setting.made
    cases: dict[str, dict[str, Any]] = {
        "moment descent, FedAvg s = 5": RAW,
        "spectral, FedAvg s = 5": {"start": "spectral", **RAW},
        "spectral, FedAvg s = 5, not extrapolated": {"start": "spectral", "acceleration": 0, **RAW},
        "spectral, one step of size 1": {"start": "spectral", "local_steps": 1, "step_size": 1.0, **RAW},
        "spectral, exact": {**EXACT, **RAW},
        "spectral, FedAvg s = 5, whitened with intercept": {"start": "spectral"},
    }
    rows = []
    for name, options in track(cases.items(), description="traffic", transient=True):
        model = FedMixedRegressor(3, random_state=0, **options).fit(made.X, made.y, sites=made.sites)
        sent = [f"{total / len(model.sites_) / 1e3:.0f}" for total in (model.run_.bytes_up, model.run_.bytes_down)]
        error = f"{setting.error(model.coef_) / setting.ols:.3f}"
        rows.append([name, f"{len(model.run_.calls)}", f"{model.n_iter_}", *sent, error])
    return Table(
        f"{configuration}: traffic of whole fits",
        ["fit", "calls", "rounds", "kB up per site", "kB down per site", "error / OLS"],
        rows,
        "Seed 1000, tol 1e-6. Features as they are but in the last row, which takes the covariance of all rows.",
    )


def perturbation_table(seeds: Sequence[int]) -> Table:
    """Return Remark 2: the error of the start under noise on the models that sites see."""
    errors: dict[float, list[float]] = {length: [] for length in (0.0, 0.25, 0.5, 1.0, 2.0)}
    for seed in track(seeds, description="perturbation", transient=True):
        setting = MixedSetting("C1", seed)
        for length, found in errors.items():
            found.append(setting.error(setting.start("moment descent", perturbation=length).models))
    return Table(
        "C1: perturbed models (Remark 2)",
        ["length of the noise", "start error, mean", "largest"],
        [[f"{length:g}", f"{np.mean(e):.3f}", f"{np.max(e):.3f}"] for length, e in errors.items()],
        f"{counted(seeds)}. Two independent perturbations for every site; models have a length of about 1. No "
        "account of privacy is made of this.",
    )


class HardCase(NamedTuple):
    """Rows at sites, the sites' clusters, and the true models of the features that a fit makes of the rows."""

    X: Matrix
    y: NDArray[np.float64]
    sites: NDArray[Any]
    labels: NDArray[np.intp]
    truth: Matrix
    features: Matrix
    options: dict[str, Any]


def hard_cases(seeds: Sequence[int]) -> Table:
    """Fit clusters with covariances of their own, and many clients of two rows with polynomial features."""
    fits: dict[str, dict[str, Any]] = {
        "default": {},
        "spectral, exact": EXACT,
        "spectral, exact, soft": {**EXACT, "assignment": "soft", "tol": 1e-4},
        "number of clusters found": {**EXACT, "n_clusters": "auto"},
    }
    rows = []
    for title, make in (("five covariances", _five_covariances), ("two rows, polynomials", _two_rows)):
        found: dict[str, list[list[float]]] = defaultdict(list)
        for seed in track(seeds, description=title, transient=True):
            case = make(seed)
            label = case.labels[np.searchsorted(np.unique(case.sites), case.sites)]
            k = len(case.truth)
            ols = [_least_squares(case.features[label == j], case.y[label == j]) for j in range(k)]
            target = bottleneck_distance(ols, case.truth)
            for name, settings in fits.items():
                model = FedMixedRegressor(**{"n_clusters": k, "random_state": 0, **case.options, **settings})
                model.fit(case.X, case.y, sites=case.sites)
                right = model.n_clusters_ == k
                error = bottleneck_distance(model.coef_, case.truth) / target if right else np.nan
                sure = float(model.proba_.max(axis=1).mean())
                found[name].append([error, matched_share(model.labels_, case.labels), sure, float(right)])
        for name, entries in found.items():
            error, share, sure, right = np.array(entries).T
            errors = [f"{np.nanmedian(error):.3f}", f"{np.nanmax(error):.3f}"]
            means = [f"{share.mean():.4f}", f"{sure.mean():.4f}"]
            rows.append([f"{title}: {name}", *errors, *means, f"{right.sum():.0f} of {len(seeds)}"])
    return Table(
        "Harder data: error over that of least squares with true labels",
        ["data: fit", "median", "largest", "labels", "mean confidence", "right number of clusters"],
        rows,
        f"{counted(seeds)}. Five covariances: k = 5, d = 30, eigenvalues of each cluster spread by 20, 250 "
        "sites of 8 rows and 25 of 40. Two rows: 900 sites of 2 rows and 20 of 50, five columns with all their squares "
        "and products, k = 3. Noise 0.2.",
    )


def mice_table() -> Table:
    """Fit a real table: levels of a protein given eight others, in 72 mice as sites."""
    title = "Mice protein expression: 72 mice as sites, 15 rows each"
    columns = ["clusters", "R2 on rows held back", "noise", "mice in the group of their behaviour"]
    try:
        mice = load_mice_protein(missing="mean")
    except DataMissingError as error:
        return Table(title, columns, [], f"Not run: {error}")
    names = mice.feature_names.tolist()
    X, y = (np.log(mice.data[:, [names.index(name) for name in some]]) for some in (MICE, ["SOD1_N"]))
    y = y[:, 0]
    test = np.zeros(len(y), dtype=bool)
    for mouse in np.unique(mice.mouse_id):
        test[np.flatnonzero(mice.mouse_id == mouse)[2::3]] = True
    rows = []
    for k in (1, 2, 3, "auto"):
        model = FedMixedRegressor(k, random_state=0, **EXACT)
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


def _five_covariances(seed: int) -> HardCase:
    rng = np.random.default_rng(seed)
    k, d, sizes = 5, 30, np.repeat([8, 40], [250, 25])
    truth, labels = rng.standard_normal((k, d)) / np.sqrt(d), rng.integers(k, size=len(sizes))
    low, high = -np.log(np.sqrt(20.0)), np.log(np.sqrt(20.0))
    shapes = []
    for _ in range(k):
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        shapes.append(axes * np.sqrt(np.exp(rng.uniform(low, high, d))))
    X = np.concatenate([rng.standard_normal((n, d)) @ shapes[z].T for n, z in zip(sizes, labels, strict=True)])
    return _case(rng, X, X, truth, labels, sizes, {})


def _two_rows(seed: int) -> HardCase:
    rng = np.random.default_rng(seed)
    k, sizes = 3, np.repeat([2, 50], [900, 20])
    labels = rng.integers(k, size=len(sizes))
    X = rng.standard_normal((int(sizes.sum()), 5))
    phi = polynomial(X, degree=2, interactions=False)
    truth = 1.5 * rng.standard_normal((k, phi.shape[1])) / np.sqrt(phi.shape[1])
    return _case(rng, X, phi, truth, labels, sizes, {"features": "polynomial"})


def _case(
    rng: np.random.Generator, X: Matrix, phi: Matrix, truth: Matrix, labels: Any, sizes: Any, options: Any
) -> HardCase:
    y = np.einsum("nd,nd->n", phi, truth[np.repeat(labels, sizes)]) + 0.2 * rng.standard_normal(len(X))
    return HardCase(X, y, np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes), labels, truth, phi, options)


def _least_squares(X: Matrix, y: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0][:-1])
