"""Runs of mixed regression for `fedspan.papers.mixed_regression_paper`: one configuration, one seed, all methods.

Starts run as federated protocols on the embedded engine. Rounds of refinement run on stacked sites, which is the same
arithmetic (`fedspan.linalg.SiteStack`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.datasets import make_mixed_regression
from fedspan.engines.local.embedded import LocalFederation, federate
from fedspan.linalg import SiteStack, bottleneck_distance, k_means, matched_share
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.cluster_start import Start
from fedspan.mixed_regression.spectral_start import spectral_start

K, D, ROUNDS = 3, 100, 400
#: Features as they are: the paper's are isotropic, and its models have no intercept.
RAW: dict[str, Any] = {"scaling": "none", "fit_intercept": False}
_STABLE, _CHECK = 5, 10  # rounds of unchanged labels before they are fixed, and between two checks then


@dataclass(frozen=True)
class Update:
    """A way to refine: local steps, or a proximal step (``steps=0``), with the weights n_i / N_j or n_i / N."""

    steps: int
    weights: str = "total"

    def operator(self, stack: SiteStack) -> Matrix:
        """Return the stacked operators at the step size of the comparison."""
        if self.steps == 0:
            return stack.proximal(1.0)
        return stack.descent(min(0.9 / stack.largest_eigenvalue(), 1.0 / self.steps), self.steps)


@dataclass
class MixedSetting:
    """One configuration and seed, its data, and what was run in it."""

    configuration: str
    seed: int
    starts: dict[str, tuple[Start, float]] = field(default_factory=dict)  # with kB up per site
    operators: dict[int, Matrix] = field(default_factory=dict)  # by the number of local steps

    @cached_property
    def made(self) -> Any:
        """The data and the truth."""
        return make_mixed_regression(self.configuration, seed=self.seed)  # type: ignore[arg-type]

    @cached_property
    def stack(self) -> SiteStack:
        """The rows of all sites."""
        return SiteStack(self.made.X, self.made.y, np.unique(self.made.sites, return_counts=True)[1])

    @cached_property
    def federation(self) -> LocalFederation:
        """The same as a federation."""
        return federate(self.made.X, self.made.y, sites=self.made.sites, seed=self.seed)

    @cached_property
    def ols(self) -> float:
        """Error of least squares with the true labels."""
        return self.error(self.stack.fitted(self.made.labels, self.made.coef))

    @cached_property
    def random(self) -> Matrix:
        """A random start with entries N(0, 1 / d): that of IFCA."""
        return np.asarray(np.random.default_rng(10_000 + self.seed).standard_normal((K, D)) / np.sqrt(D))

    def error(self, models: Matrix) -> float:
        """Return the largest distance of a model from its true one."""
        return bottleneck_distance(models, self.made.coef)

    def accuracy(self, models: Matrix) -> float:
        """Return the share of sites in the right cluster."""
        return matched_share(self.stack.labels(models), self.made.labels)

    def start(self, name: str, **options: Any) -> Start:
        """Return what a federated start finds: ``"moment descent"`` or ``"spectral"``. It runs once."""
        key = f"{name} {options}" if options else name
        if key not in self.starts:
            protocol: Callable[..., Start] = {"moment descent": moment_descent, "spectral": spectral_start}[name]
            with self.federation.begin(name) as run:
                found = protocol(run, n_clusters=K, n_columns=D, **options)
            self.starts[key] = found, run.record.bytes_up / len(run.sites) / 1e3
        return self.starts[key][0]

    def refined(self, models: Matrix, update: Update, rounds: int = ROUNDS) -> tuple[Matrix, list[float]]:
        """Return the models after all rounds, and the error before each of them and after the last."""
        return trajectory(self.stack, self.operator(update), models, update.weights, rounds, self.error)

    def operator(self, update: Update) -> Matrix:
        """Return the stacked operators of an update, computed once."""
        if update.steps not in self.operators:
            self.operators[update.steps] = update.operator(self.stack)
        return self.operators[update.steps]

    def exact(self, models: Matrix) -> tuple[Matrix, int]:
        """Return the models that alternating least squares ends at, and its number of rounds."""
        before = np.full(len(self.stack.sizes), -1)
        for number in range(100):
            labels = self.stack.labels(models)
            if np.array_equal(labels, before):
                return models, number
            models, before = self.stack.fitted(labels, models), labels
        return models, 100

    def one_shot(self) -> tuple[Matrix, list[float], float]:
        """Return models of groups of local fits, their errors by round, and the share of sites in the right group."""
        stack = self.stack
        rows = [stack.rows(i) for i in range(len(stack.sizes))]
        local = np.stack([np.linalg.lstsq(stack.X[some], stack.y[some], rcond=None)[0] for some in rows])
        labels = k_means(local, K, np.random.default_rng(self.seed), starts=5).labels
        models, errors = self._with_labels(labels, np.zeros((K, D)), "cluster", self.error)
        return models, errors, matched_share(labels, self.made.labels)

    def vanilla(self) -> list[float]:
        """Return the errors by round of one model for all sites."""
        labels = np.zeros(len(self.stack.sizes), dtype=np.intp)
        return self._with_labels(labels, self.random[:1], "total", lambda one: self.error(np.repeat(one, K, axis=0)))[1]

    def _with_labels(
        self, labels: NDArray[np.intp], models: Matrix, weights: str, measure: Callable[[Matrix], float]
    ) -> tuple[Matrix, list[float]]:
        """Run rounds of s = 5 in which no site changes its cluster."""
        slopes, offsets = _affine(self.stack, self.operator(Update(5)), labels, len(models), weights)
        errors = [measure(models)]
        for _ in range(ROUNDS):
            models = _round(models, slopes, offsets)
            errors.append(measure(models))
        return models, errors


def trajectory(
    stack: SiteStack, Z: Matrix, models: Matrix, weights: Any, rounds: int, measure: Callable[[Matrix], float]
) -> tuple[Matrix, list[float]]:
    """Run rounds of refinement and measure each.

    Once labels have stayed for some rounds a round is an affine map of each model, which is computed once. Labels are
    checked every few rounds; where they changed, those rounds run again.
    """
    errors: list[float] = []
    labels, calm = np.full(len(stack.sizes), -1), 0
    while len(errors) < rounds:
        errors.append(measure(models))
        found = stack.labels(models)
        calm = calm + 1 if np.array_equal(found, labels) else 0
        labels = found
        if calm < _STABLE:
            models = stack.refined(models, Z, weights, labels)
            continue
        slopes, offsets = _affine(stack, Z, labels, len(models), weights)
        models = _round(models, slopes, offsets)
        while len(errors) < rounds:
            ahead, seen = models, []
            for _ in range(min(_CHECK, rounds - len(errors))):
                seen.append(measure(ahead))
                ahead = _round(ahead, slopes, offsets)
            if not np.array_equal(stack.labels(ahead), labels):
                calm = 0
                break
            models, errors = ahead, errors + seen
    return models, [*errors, measure(models)]


def rounds_to(errors: list[float], target: float) -> float:
    """Return after how many rounds the error is at most `target` and stays there; infinity if never."""
    above = np.flatnonzero(np.asarray(errors) > target)
    if not above.size:
        return 0.0
    return float(above[-1] + 1) if above[-1] + 1 < len(errors) else np.inf


def _round(models: Matrix, slopes: Matrix, offsets: Matrix) -> Matrix:
    return np.asarray(models + offsets - np.einsum("kde,ke->kd", slopes, models))


def _affine(
    stack: SiteStack, Z: Matrix, labels: NDArray[np.intp], k: int, weights: str
) -> tuple[NDArray[np.float64], Matrix]:
    d = stack.X.shape[1]
    slopes, offsets = np.zeros((k, d, d)), np.zeros((k, d))
    row_label, size = labels[stack.site_of_row], stack.sizes[stack.site_of_row].astype(np.float64)
    for j in range(k):
        rows = row_label == j
        total = float(stack.sizes[labels == j].sum()) if weights == "cluster" else float(stack.sizes.sum())
        if rows.any():
            weighted = Z[rows] * (size[rows] / total)[:, None]
            slopes[j], offsets[j] = weighted.T @ stack.X[rows], weighted.T @ stack.y[rows]
    return slopes, offsets
