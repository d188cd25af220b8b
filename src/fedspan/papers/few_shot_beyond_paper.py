"""Few-shot learning beyond the paper's figure: step sizes, splits by tasks, other attacks, and new tasks."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from rich.progress import track

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian, Mean, MultiKrum, TrimmedMean
from fedspan.arrays import Matrix
from fedspan.attacks import Redrawn, ScaledReverse
from fedspan.datasets import make_few_shot_tasks
from fedspan.datasets.bunch import Bunch
from fedspan.engines.local.embedded import federate
from fedspan.federation import Attack, Federation
from fedspan.few_shot.estimator import FedFewShotRegressor
from fedspan.linalg import subspace_distance
from fedspan.linalg.regression.stacked_least_squares import stacked_least_squares
from fedspan.papers.attacks_paper import KNOWN_ATTACKS, JustBelow
from fedspan.papers.few_shot_runs_paper import GRADIENT, FewShotSetting, curve
from fedspan.papers.results_paper import Chart, Table, counted, spread

SETTING = FewShotSetting(200, 200, 4, 20, 10)
BAD = 3
#: Rows of new tasks.
COUNTS = (6, 8, 12, 20, 50, 100)
REVERSE = ScaledReverse(10.0)
ATTACKS: dict[str, Attack] = {
    "reverse x10": REVERSE,
    "just below the threshold, reversed": JustBelow(fixed=False, steps=(GRADIENT,), keys=("gradient",)),
    "just below the threshold, fixed": JustBelow(fixed=True, steps=(GRADIENT,), keys=("gradient",)),
    **KNOWN_ATTACKS,
    "reverse x10, redrawn": Redrawn(REVERSE, BAD),
}


def problem(seed: int, noise: float = 0.0, attack: Attack | None = REVERSE) -> tuple[Bunch, Federation]:
    """Return the truth of a seed, and the federation in which `BAD` sites attack every call."""
    made, fed = SETTING.data(seed, noise, first=7000)
    return made, fed if attack is None else fed.corrupt(attack, sites=fed.sites[:BAD])


def step_sizes(seeds: Sequence[int]) -> Table:
    """Return the error after 20 and 40 iterations against the step size."""
    rows = []
    for eta in track((0.5, 1.0, 1.5), description="step sizes", transient=True):
        paths = []
        for seed in seeds:
            made, fed = problem(seed)
            paths.append(curve(fed, made.basis, step_size=eta, iterations=40))
        errors = [[path[at] for path in paths] for at in (20, 40)]
        rows.append([f"{eta:g}", *(f"{np.mean(some):.1e} ({max(some):.1e})" for some in errors)])
    return Table(
        "Step size",
        ["eta, in units of 1 / sigma_1^2", "iteration 20, mean (max)", "iteration 40, mean (max)"],
        rows,
        f"SD_F / sqrt(r) over {counted(seeds)}; {SETTING}, {BAD} bad sites send -10 times the mean in every call; "
        "geometric median. 0.5 is the theory's, 1 the default.",
    )


def splits(seeds: Sequence[int]) -> Table:
    """Return the errors of the same rows, cut by rows and by tasks of unequal sizes."""
    q, n_sites = SETTING.q, SETTING.sites
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    rules = {"sums": None, "geometric median": GeometricMedian()}
    for seed in track(seeds, description="splits", transient=True):
        rng = np.random.default_rng(seed)
        data = SETTING.made(6000 + seed, noise=0.5)
        kept = rng.random(len(data.y)) < rng.uniform(0.3, 1.0, q)[data.task]  # tasks of 60 to 200 rows
        owner = rng.choice(n_sites, q, p=np.arange(1, n_sites + 1) / 55)  # sites of about 4 to 36 tasks
        for name, sites in (("rows of all tasks", data.sites), ("tasks of their own", owner[data.task])):
            fed = federate(data.X[kept], data.y[kept], sites=sites[kept], task=data.task[kept], seed=seed)
            for kind, aggregator in rules.items():
                model = FedFewShotRegressor(SETTING.r, aggregator=aggregator, iterations=80).fit(fed)
                distance = subspace_distance(model.representation_, data.basis) / np.sqrt(SETTING.r)
                errors[name, kind].append(distance)
                errors[name, f"{kind}, coefficients"].append(_squared_error(model.coef_, data.coef))
    columns = [*rules, *(f"{kind}, coefficients" for kind in rules)]
    names = dict.fromkeys(name for name, _ in errors)
    return Table(
        "Sites with rows of all tasks, and sites with tasks of their own",
        ["sites have", *columns],
        [[name, *(spread(errors[name, column], 4) for column in columns)] for name in names],
        f"The same rows; {SETTING.n} features, {q} tasks of 60 to 200 rows, {n_sites} sites, cut by tasks into sites "
        f"of about 4 to 36 tasks; noise 0.5, {counted(seeds)}. SD_F / sqrt(r) of the representation, and the mean "
        "squared error of the tasks' coefficients.",
    )


def more_attacks(seeds: Sequence[int], quick: bool = False) -> Table:
    """Return the error after 40 iterations under attacks that the paper does not have."""
    rules: dict[str, Aggregator] = {
        "geometric median": GeometricMedian(),
        "coordinate median": CoordinateMedian(),
        "trimmed mean": TrimmedMean(BAD),
        "multi-Krum": MultiKrum(BAD, SETTING.sites - 2 * BAD),
        "mean": Mean(),
    }
    attacks: dict[str, Attack | None] = {"none": None, **ATTACKS}
    if quick:
        attacks = {name: attacks[name] for name in ("reverse x10", "just below the threshold, reversed")}
        rules = {name: rules[name] for name in ("geometric median", "mean")}
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seed in seeds:
        made, fed = problem(seed, attack=None)
        for name, attack in track(attacks.items(), description="attacks", transient=True):
            attacked = fed if attack is None else fed.corrupt(attack, sites=fed.sites[:BAD])
            for rule_name, rule in rules.items():
                errors[name, rule_name].append(curve(attacked, made.basis, aggregator=rule, iterations=40)[-1])
    return Table(
        f"{BAD} of {SETTING.sites} sites attack every call",
        ["SD_F / sqrt(r), iteration 40", *rules],
        [[name, *(f"{np.mean(errors[name, rule]):.1e}" for rule in rules)] for name in attacks],
        f"Mean over {counted(seeds)}; {SETTING}; step 1. The start is the subspace median in every column.",
    )


def excess_risk(seeds: Sequence[int], noises: Sequence[float], quick: bool = False) -> list[Chart]:
    """Return the error of new tasks against the rows that they are learned from."""
    new, r = 50 if quick else 200, SETTING.r
    parts = []
    for noise in track(noises, description="new tasks", transient=True):
        errors: dict[str, list[list[float]]] = defaultdict(list)
        for seed in seeds:
            made, fed = problem(seed, noise)
            model = FedFewShotRegressor(r, aggregator=GeometricMedian(), iterations=80).fit(fed)
            fresh = make_few_shot_tasks(
                SETTING.n, new, r, COUNTS[-1], 1, noise=noise, basis=made.basis, seed=8000 + seed
            )
            for name, values in _new_tasks(model, made.basis, fresh).items():
                errors[name].append(values)
        lines = {name: np.mean(values, axis=0).tolist() for name, values in errors.items()}
        if noise:
            lines["theory, knows U*"] = [noise**2 * r / (m - r - 1) for m in COUNTS]
        else:
            del lines["knows U*"]  # exact
        parts.append(
            Chart(
                f"New tasks, noise {noise:g}: squared error of the coefficients against the rows of the task",
                "rows of the new task",
                COUNTS,
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
    X, y = fresh.X.reshape(q, m, -1), fresh.y.reshape(q, m)
    errors: dict[str, list[float]] = defaultdict(list)
    for count in COUNTS:
        tables, targets = X[:, :count], y[:, :count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few rows, which are the point here
            learned = np.stack([model.adapt(tables[k], targets[k]).coef for k in range(q)])
        errors["learned"].append(_squared_error(learned, fresh.coef))
        known = stacked_least_squares(tables @ truth, targets) @ truth.T
        errors["knows U*"].append(_squared_error(known, fresh.coef))
        errors["least norm"].append(_squared_error(stacked_least_squares(tables, targets), fresh.coef))
    return errors


def _squared_error(coef: Matrix, truth: Matrix) -> float:
    return float(np.mean(np.sum((coef - truth) ** 2, axis=1)))
