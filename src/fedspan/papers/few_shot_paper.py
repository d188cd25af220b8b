"""Byzantine-resilient few-shot learning: A. P. Singh and N. Vaswani, ICML 2024, ours beside theirs.

Setting: n = q = 600, r = 4, U* a QR factor of a Gaussian matrix, b_k and X_k standard normal, no noise, L = 18 sites.
The paper does not state the number of rows. Its numbers fit m = 288, that is 16 rows of each task at each site, and 9
batches of two sites. Byzantine ("bad") sites send -10 times the mean of the honest thresholds, and a chessboard of +-10
for every matrix of the start. They also send -10 times the mean of the honest gradients. Errors are ``SD_F / sqrt(r)``.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.progress import track

from fedspan.aggregation import GeometricMedian, Mean, MedianOfMeans
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.papers import few_shot_beyond_paper as beyond
from fedspan.papers.few_shot_runs_paper import FewShotSetting, RunCost, bad_sites, curve
from fedspan.papers.results_paper import Chart, Part, Results, Table, Words, published

GM: dict[str, Any] = {"init": "subspace_median", "output": "node"}
GMOM: dict[str, Any] = {"init": "median_of_means", "groups": 9, "output": "node", "aggregator": MedianOfMeans(9)}
#: The methods of Figure 1 whose start is by the power method.
BY_POWER = ("mean, no attack", "GMoM, 1 bad", "GMoM, 2 bad")


def run(quick: bool = False) -> Results:
    """Run the paper's table and figure, and what goes beyond them; `quick` means one seed and smaller problems."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of sites that attack, and of small tasks: both are intended
        parts = list(_parts(quick))
    return Results(
        "Byzantine-resilient few-shot learning",
        "The start and Figure 1 of Singh and Vaswani (ICML 2024), and what goes beyond them. The paper's numbers in "
        "brackets.",
        parts,
    )


def _parts(quick: bool) -> Iterator[Part]:
    setting = FewShotSetting(120, 120, 3, 15, 18) if quick else FewShotSetting()
    seeds = range(1 if quick else 3)
    yield start_table(FewShotSetting(), range(1 if quick else 10), quick)
    costs: dict[str, RunCost] = {}
    yield descent(setting, seeds, 30 if quick else 60, costs)
    yield cost_table(setting, costs)
    yield beyond.step_sizes(seeds)
    yield beyond.splits(seeds)
    yield beyond.more_attacks(seeds, quick)
    yield from beyond.excess_risk(seeds, noises=(0.0, 0.1) if quick else (0.0, 0.1, 0.5), quick=quick)
    yield words()


def paper_truncation(made: Any) -> float:
    """Return the paper's constant C = 9 kappa^2 mu^2 of the true loadings (q, r)."""
    (q, r), sizes = made.loadings.shape, np.linalg.svd(made.loadings, compute_uv=False)
    mu = np.linalg.norm(made.loadings, axis=1).max() / (np.sqrt(r / q) * sizes[0])
    return 9.0 * float((sizes[0] / sizes[-1]) ** 2 * mu**2)


def start_table(setting: FewShotSetting, seeds: Sequence[int], quick: bool = False) -> Table:
    """Return the errors of the start, as "max (mean)" over seeds."""
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for seed in track(seeds, description="start", transient=True):
        made, fed = setting.data(seed)
        ways: dict[str, dict[str, Any]] = {
            "GM, node, C = 9 kappa^2 mu^2": {**GM, "truncation": paper_truncation(made)},
            "GMoM, node, C = 9 kappa^2 mu^2": {**GMOM, "truncation": paper_truncation(made)},
            "GM, eigenspace, C = 9": {**GM, "output": "eigenspace"},
            "GMoM, eigenspace, C = 9": {**GMOM, "output": "eigenspace"},
            "GM, node, C = 9": GM,
            "GMoM, node, C = 9": GMOM,
        }
        for count in (1, 2):
            attacked = bad_sites(fed, count)
            for name, way in list(ways.items())[: 3 if quick else None]:
                errors[name, count].append(curve(attacked, made.basis, iterations=0, **way)[0])
        errors["all rows, no attack", 1].append(curve(fed, made.basis, altgdmin, iterations=0)[0])
        del fed, attacked
    theirs = published("few-shot")["start"]

    def cell(name: str, count: int) -> str:
        values = errors.get((name, count), [])
        shown = f"{max(values):.3f} ({np.mean(values):.3f})" if values else ""
        if name not in theirs:
            return shown
        most, mean = theirs[name][count - 1]
        return f"{shown} [{most:.3f} ({mean:.3f})]"

    names = dict.fromkeys(name for name, _ in errors)
    return Table(
        "Table of Figure 1: errors of the start",
        ["SD_F / sqrt(r), max (mean)", "1 bad site", "2 bad sites"],
        [[name, cell(name, 1), cell(name, 2)] for name in names],
        f"Over {len(seeds)} seeds, in brackets the paper's value of 100; {setting}; bad sites in different batches, 9 "
        "batches. The rows with the paper's values truncate at C = 9 kappa^2 mu^2 as it does, which takes the truth to "
        "know; C = 9 takes no knowledge and is better. The paper names SD_F, but its numbers fit SD_F / sqrt(r).",
    )


def descent(setting: FewShotSetting, seeds: Sequence[int], iterations: int, costs: dict[str, RunCost]) -> Chart:
    """Return Figure 1: error against iterations."""
    half: dict[str, Any] = {"iterations": iterations, "step_size": 0.5}
    ways: dict[str, tuple[int, Callable[..., Any], dict[str, Any]]] = {
        "mean, no attack": (0, altgdmin, half),
        "GM, 1 bad": (1, byz_altgdmin, {**GM, **half}),
        "GM, 2 bad": (2, byz_altgdmin, {**GM, **half}),
        "GMoM, 1 bad": (1, byz_altgdmin, {**GMOM, **half}),
        "GMoM, 2 bad": (2, byz_altgdmin, {**GMOM, **half}),
        "mean, 2 bad": (2, byz_altgdmin, {**GM, **half, "aggregator": Mean()}),
        "ours, 2 bad": (2, byz_altgdmin, {"iterations": iterations, "aggregator": GeometricMedian()}),
    }
    errors: dict[str, list[list[float]]] = defaultdict(list)
    for seed in track(seeds, description="Figure 1", transient=True):
        made, fed = setting.data(seed)
        for name, (count, protocol, settings) in ways.items():
            errors[name].append(curve(bad_sites(fed, count), made.basis, protocol, costs, name, **settings))
        del fed
    shown = list(range(0, iterations + 1, 5))
    return Chart(
        "Figure 1: error against iterations",
        "iteration",
        shown,
        {name: np.mean(runs, axis=0)[shown].tolist() for name, runs in errors.items()},
        f"Mean SD_F / sqrt(r) over {len(seeds)} seeds; {setting}; step 0.5 / sigma_1^2 and the start of the site "
        "nearest to the median, as in the paper, with sigma_1 estimated. Ours: step 1 and the start by the eigenspace. "
        "Mean, 2 bad: the plain mean of gradients, from the resilient start.",
        log=True,
    )


def cost_table(setting: FewShotSetting, costs: dict[str, RunCost]) -> Table:
    """Return bytes and seconds beside the theory: n r numbers up and down per iteration."""
    n, q, r = setting.n, setting.q, setting.r
    each_way = 8 * n * r / 1e3
    rows = []
    for name, cost in costs.items():
        expected = 10 * 2 * 8 * (n + q) * r / 1e3 if name in BY_POWER else each_way
        traffic = [f"{cost.start_bytes / 1e3:.1f} [{expected:.1f}]", f"{cost.bytes / 1e3:.1f} [{2 * each_way:.1f}]"]
        at_sites, own = f"{cost.seconds / setting.sites * 1e3:.1f}", f"{cost.own_seconds * 1e3:.1f}"
        rows.append([name, *traffic, f"{cost.start_seconds:.2f}", at_sites, own])
    columns = ["method", "kB per site, start", "kB per site and iteration", "start, s", "ms per site and iteration"]
    return Table(
        "Cost per method, in the setting of Figure 1",
        [*columns, "ms at the centre"],
        rows,
        "Both ways; in brackets the theory: n r numbers each way and iteration; of the start n r once or, by the power "
        "method, (n + q) r each way in each of 10 iterations. Beyond the theory: r^2 + 3 numbers per iteration, the "
        "tasks' names with every exchange by task, and the names of keys; 2 r^2 + 3 numbers in the end are left out. "
        "Seconds of the last seed, on one thread; the start with the work of all sites. The centre's time is that of "
        "medians and QR, in O(L n r) memory: never an n x n matrix, where the paper counts n^2 L.",
    )


def words() -> Words:
    """Return what differs from the paper, and why."""
    return Words(
        "What differs from the paper",
        [
            "The paper's start and its curves are reproduced by 16 rows of each task at each site and 9 batches, which "
            "it does not state. With its own constant C = 9 kappa^2 mu^2 the start has its errors; with C = 9, which "
            "truncates more and takes no knowledge, it is better, and the leading eigenspace of the median projector, "
            "in place of the site nearest to it, is better by more than the batches of means are, in one round.",
            "sigma_1 is not known in practice. It is estimated by the geometric median over the sites of the second "
            "moment of their own coefficients, in every iteration, which is exact where the iteration converges.",
            "A plain mean of gradients survives one bad site that sends -10 times the mean, because (17 - 10) / 18 of "
            "the gradient are left, and fails with two: (16 - 20) / 18.",
            "The norm threshold has no value in the paper: ten times the median length here. The reversed gradients "
            "stay just below it, so it is the median that outvotes them.",
        ],
    )
