"""Few-shot learning beyond the paper's figure: step sizes, splits by tasks, other attacks, and new tasks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian, Mean, MultiKrum, TrimmedMean
from fedspan.attacks import ALittleIsEnough, InnerProduct, Mimic, RandomNoise, Redrawn, ScaledReverse, SignFlip
from fedspan.datasets import make_few_shot_tasks
from fedspan.datasets.bunch import Bunch
from fedspan.engines.local.embedded import federate
from fedspan.federation import Attack, AttackedCall, Federation
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.estimator import FedFewShotRegressor
from fedspan.linalg import subspace_distance
from fedspan.linalg.regression.stacked_least_squares import stacked_least_squares
from fedspan.papers.results_paper import Chart, Table, counted, spread

Matrix = NDArray[np.float64]

N = Q = 200
R, ROWS, SITES, BAD = 4, 20, 10, 3
#: Rows of new tasks.
COUNTS = (6, 8, 12, 20, 50, 100)
SETTING = f"n = q = {N}, r = {R}, L = {SITES}, {ROWS} rows of each task at each site"


class JustBelow:
    """Send 9.9 times the median length of the honest gradients, along their reversed mean or one fixed direction."""

    def __init__(self, direction: str) -> None:
        self.direction = direction

    def __repr__(self) -> str:
        return f"JustBelow({self.direction!r})"

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the gradients of the bad sites."""
        if not call.step.endswith("local_gradient"):
            return {}
        honest = np.stack([reply["gradient"] / reply["rows"] for site, reply in replies.items() if site not in bad])
        lie = -honest.mean(axis=0)
        if self.direction == "fixed":
            lie = np.random.default_rng(0).standard_normal(lie.shape)
        lie *= 9.9 * float(np.median(np.linalg.norm(honest, axis=(1, 2)))) / float(np.linalg.norm(lie))
        return {site: {**replies[site], "gradient": lie * replies[site]["rows"]} for site in bad}


ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "reverse x10": ScaledReverse(10.0),
    "just below the threshold, reversed": JustBelow("reverse"),
    "just below the threshold, fixed": JustBelow("fixed"),
    "sign flip": SignFlip(),
    "a little is enough": ALittleIsEnough(1.5),
    "inner product": InnerProduct(0.1),
    "mimic": Mimic(),
    "random x100": RandomNoise(100.0),
    "reverse x10, redrawn": Redrawn(ScaledReverse(10.0), BAD),
}


def step_sizes(seeds: Sequence[int]) -> Table:
    """Error after 20 and 40 iterations against the step size."""
    rows = []
    for eta in track((0.5, 1.0, 1.5), description="step sizes", transient=True):
        errors: list[tuple[float, float]] = []
        for seed in seeds:
            data, fed = _data(seed)
            path = _errors(fed.corrupt(ScaledReverse(10.0), sites=fed.sites[:BAD]), data, step_size=eta, iterations=40)
            errors.append((path[20], path[40]))
        rows.append([f"{eta:g}", *(f"{np.mean(e):.1e} ({max(e):.1e})" for e in zip(*errors, strict=True))])
    return Table(
        "Step size",
        ["eta, in units of 1 / sigma_1^2", "iteration 20, mean (max)", "iteration 40, mean (max)"],
        rows,
        f"SD_F / sqrt(r) over {counted(seeds)}; {SETTING}, {BAD} bad sites send -10 times the mean in every call; "
        "geometric median. 0.5 is the theory's, 1 the default.",
    )


def splits(seeds: Sequence[int]) -> Table:
    """Cut the same rows by rows and by tasks of unequal sizes."""
    errors: dict[tuple[str, str], list[float]] = {}
    for seed in track(seeds, description="splits", transient=True):
        rng = np.random.default_rng(seed)
        data = make_few_shot_tasks(N, Q, R, ROWS * SITES, SITES, noise=0.5, seed=6000 + seed)
        kept = rng.random(len(data.y)) < rng.uniform(0.3, 1.0, Q)[data.task]  # tasks of 60 to 200 rows
        owner = rng.choice(SITES, Q, p=np.arange(1, SITES + 1) / 55)  # sites of about 4 to 36 tasks
        for name, sites in (("rows of all tasks", data.sites), ("tasks of their own", owner[data.task])):
            fed = federate(data.X[kept], data.y[kept], sites=sites[kept], task=data.task[kept], seed=seed)
            for kind, aggregator in (("sums", None), ("geometric median", GeometricMedian())):
                model = FedFewShotRegressor(R, aggregator=aggregator, iterations=80).fit(fed)
                errors.setdefault((name, kind), []).append(
                    subspace_distance(model.representation_, data.basis) / np.sqrt(R)
                )
                errors.setdefault((name, kind + ", coefficients"), []).append(
                    float(np.mean(np.sum((model.coef_ - data.coef) ** 2, axis=1)))
                )
    columns = ["sums", "geometric median", "sums, coefficients", "geometric median, coefficients"]
    rows = [
        [name, *(spread(errors[name, c], 4) for c in columns)] for name in ("rows of all tasks", "tasks of their own")
    ]
    return Table(
        "Sites with rows of all tasks, and sites with tasks of their own",
        ["sites have", *columns],
        rows,
        f"The same rows; {N} features, {Q} tasks of 60 to 200 rows, {SITES} sites, cut by tasks into sites of about 4 "
        f"to 36 tasks; noise 0.5, {counted(seeds)}. SD_F / sqrt(r) of the representation, and the mean squared error "
        "of the tasks' coefficients.",
    )


def more_attacks(seeds: Sequence[int], quick: bool = False) -> Table:
    """Error after 40 iterations under attacks that the paper does not have."""
    attacks = dict(list(ATTACKS.items())[1:3]) if quick else ATTACKS
    rules: dict[str, Aggregator] = {
        "geometric median": GeometricMedian(),
        "coordinate median": CoordinateMedian(),
        "trimmed mean": TrimmedMean(BAD),
        "multi-Krum": MultiKrum(BAD, SITES - 2 * BAD),
        "mean": Mean(),
    }
    if quick:
        rules = {name: rules[name] for name in ("geometric median", "mean")}
    errors: dict[tuple[str, str], list[float]] = {}
    for seed in seeds:
        data, fed = _data(seed)
        for attack_name, attack in track(attacks.items(), description="attacks", transient=True):
            attacked = fed if attack is None else fed.corrupt(attack, sites=fed.sites[:BAD])
            for name, rule in rules.items():
                path = _errors(attacked, data, aggregator=rule, iterations=40)
                errors.setdefault((attack_name, name), []).append(path[-1])
    rows = [[attack, *(f"{np.mean(errors[attack, rule]):.1e}" for rule in rules)] for attack in attacks]
    return Table(
        f"{BAD} of {SITES} sites lie in every call",
        ["SD_F / sqrt(r), iteration 40", *rules],
        rows,
        f"Mean over {counted(seeds)}; {SETTING}; step 1. The start is the subspace median in every column.",
    )


def excess_risk(seeds: Sequence[int], noises: Sequence[float], quick: bool = False) -> list[Chart]:
    """Error of new tasks against the rows that they are learned from."""
    new = 50 if quick else 200
    parts = []
    for noise in track(noises, description="new tasks", transient=True):
        errors: dict[str, list[list[float]]] = {name: [] for name in ("learned", "knows U*", "least norm")}
        for seed in seeds:
            data, fed = _data(seed, noise)
            model = FedFewShotRegressor(R, aggregator=GeometricMedian(), iterations=80)
            model.fit(fed.corrupt(ScaledReverse(10.0), sites=fed.sites[:BAD]))
            fresh = make_few_shot_tasks(N, new, R, COUNTS[-1], 1, noise=noise, basis=data.basis, seed=8000 + seed)
            for name, values in _new_tasks(model, data.basis, fresh).items():
                errors[name].append(values)
        lines = {name: np.mean(values, axis=0).tolist() for name, values in errors.items()}
        if noise:
            lines["theory, knows U*"] = [noise**2 * R / (m - R - 1) for m in COUNTS]
        else:
            del lines["knows U*"]  # exact
        parts.append(
            Chart(
                f"New tasks, noise {noise:g}: squared error of the coefficients against the rows of the task",
                "rows of the new task",
                list(COUNTS),
                lines,
                f"Mean of ||theta - theta*||^2 (the excess risk, for white features) over {new} new tasks and "
                f"{counted(seeds)}; {SETTING}, noise {noise:g}, {BAD} bad sites send -10 times the mean; geometric "
                "median, 80 iterations. Theory: sigma^2 r / (m - r - 1), infinite in the mean at m = r + 1; least norm "
                "without noise: r (1 - m / n).",
                log=True,
                log_x=True,
            )
        )
    return parts


def _new_tasks(model: FedFewShotRegressor, truth: Matrix, fresh: Bunch) -> dict[str, list[float]]:
    """Return the mean squared errors of the coefficients of new tasks, for each number of rows."""
    q, m = len(fresh.coef), COUNTS[-1]
    X, y = fresh.X.reshape(q, m, N), fresh.y.reshape(q, m)
    errors: dict[str, list[float]] = {"learned": [], "knows U*": [], "least norm": []}
    for count in COUNTS:
        T, tables, targets = X[:, :count] @ truth, X[:, :count], y[:, :count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few rows, which are the point here
            learned = np.stack([model.adapt(tables[k], targets[k]).coef for k in range(q)])
        found = {
            "learned": learned,
            "knows U*": stacked_least_squares(T, targets) @ truth.T,
            "least norm": stacked_least_squares(tables, targets),
        }
        for name, coef in found.items():
            errors[name].append(float(np.mean(np.sum((coef - fresh.coef) ** 2, axis=1))))
    return errors


def _data(seed: int, noise: float = 0.0) -> tuple[Bunch, Federation]:
    data = make_few_shot_tasks(N, Q, R, ROWS * SITES, SITES, noise=noise, seed=7000 + seed)
    return data, federate(data.X, data.y, sites=data.sites, task=data.task, seed=seed)


def _errors(fed: Federation, data: Bunch, **settings: Any) -> list[float]:
    errors: list[float] = []
    fed.run(
        byz_altgdmin,
        rank=R,
        n_columns=N,
        tol=0.0,
        watch=lambda U: errors.append(subspace_distance(U, data.basis) / np.sqrt(R)),
        **settings,
    )
    return errors
