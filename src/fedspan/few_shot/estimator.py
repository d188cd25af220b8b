"""FedFewShotRegressor: many related regressions with one low-dimensional representation, and new ones from few rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.base import FedEstimator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.few_shot.altgdmin import Representation, altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.new_task import NewTask, TaskPrior, learned_task
from fedspan.few_shot.parts import few_shot_checks as checks
from fedspan.few_shot.parts.task_coefs import median_coefs, pooled_coefs
from fedspan.few_shot.parts.task_rows import positions, refuse_extreme
from fedspan.few_shot.parts.tasks import MOST_ROWS, Tasks, agree_on_tasks, warn
from fedspan.sums.moments import refuse_bad_values

_STAYED = "the tasks' coefficients stayed at their sites (share_coefs=False): adapt to a task first"


@dataclass(eq=False, repr=False)
class FedFewShotRegressor(RegressorMixin, FedEstimator):
    """Linear regressions of many tasks that share a representation: ``y = x' U b_k`` with one U (n, r) for all tasks k.

    Sites have rows of all tasks, or tasks of their own, or anything between. A task may have fewer rows than features,
    and as few as r + 1 at a site; with fewer it does not count for U there. Below 2 r rows coefficients are uncertain:
    a warning states the number of such tasks, and `ridge` decides how they are treated.

    Parameters
    ----------
    rank : int or "auto", default="auto"
        r. ``"auto"``: of at most `max_rank` directions those that the tasks use by more than noise explains.
    aggregator : Aggregator, optional
        Rule that combines the sites' gradients. Default: sums (AltGDmin), which any site can spoil. With a rule such as
        ``fedspan.aggregation.MajorityMean()``, ``GeometricMedian()`` or ``MedianOfMeans(groups)`` (the last two are the
        paper's), medians combine all else that sites send (Byz-AltGDmin). Fewer than half of the sites (of the groups)
        can then do limited harm to the representation, and to `adapt`. It is a multiple of what honest sites differ by.
        For medians the multiple grows without limit towards one half. The coefficients of a task are safe while more
        than half of the sites *that name it* are honest. Colluding sites may name the tasks of others. Use `adapt` on
        rows of your own where that matters.
    step_size : float, default=1.0
        In units of 1 / sigma_1^2, which is estimated. 0.5 is the choice of the theory.
    iterations : int, default=100
        Most rounds of gradient descent.
    tol : float, default=1e-8
        Stop when the representation moves by less in a round (``SD_F / sqrt(r)``); a warning if it never does. 0: run
        all `iterations`, without a warning.
    fit_intercept : bool, default=False
        Give each task a constant of its own. The paper's model has none: set it where targets or features are not
        centred.
    share_coefs : bool, default=True
        Whether the sites send their tasks' coefficients. Without them there is only the representation, and `adapt`.
        That does not promise privacy: the messages that teach the representation reveal much about the coefficients,
        see the notes.
    ridge : float or "auto", default="auto"
        Penalty on ``||b_k||^2`` of the coefficients that `fit` returns; U is learned without it. ``"auto"``: for tasks
        with fewer than twice as many rows as unknowns the noise variance over the mean square of ``b_k``, for all
        others 0. A number is for all tasks; with 0, coefficients have the least norm where rows do not decide.
    truncation : float, default=9.0
        Targets above the root of this many times their mean square do not count for the start.
    power_iterations : int, default=10
        Of starts by the power method.
    max_rank : int, default=16
        Directions to look for with ``rank="auto"``; fewer where a typical site has too few rows or tasks.
    sample_split : bool, default=False
        Fresh rows for every half of an iteration, as in the proofs. Needs a great many rows.
    init : {"auto", "subspace_median", "median_of_means", "random"}, default="auto"
        With an aggregator: the start. See `fedspan.few_shot.byz_altgdmin`.
    groups : int, optional
        With an aggregator: groups of a start by median of means.
    output : {"eigenspace", "node", "trimmed"}, default="eigenspace"
        With an aggregator: of the subspace median that starts it; "node" is the paper's.
    threshold : float or None, default=10.0
        With an aggregator: refuse gradients longer than this many times the median length.
    random_state, verbose : int, optional
        Seed of the run; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    representation_ : array (n, r)
        U, orthonormal; the direction along which the tasks' coefficients are largest comes first.
    tasks_ : array (q,)
        The tasks, sorted: whole numbers where all labels are, otherwise text.
    loadings_ : array (q, r)
        ``b_k`` of each task.
    coef_ : array (q, n)
        ``U b_k`` of each task.
    intercept_ : array (q,)
    task_errors_ : array (q,)
        Root mean squared residual of each task's rows, per degree of freedom; NaN without any, and with an
        aggregator, since then sites do not send it.
    noise_variance_ : float
        Mean squared residual per degree of freedom.
    loadings_moment_ : array (r, r)
        Second moment of the true ``b_k``: without that of noise.
    representation_error_ : float
        Squared error that noise in U should leave in the coefficients of a typical task: ``sigma^2 r (n - r)`` over the
        degrees of freedom and the features' mean square. Malicious sites can make it larger.
    feature_variance_ : float
        Mean square of the features.
    rank_, n_iter_ : int
    sites_trusted_ : tuple of str
        The sites with at least half an equal share of the weight, sorted, without those that repeat a gradient. None,
        where the gradients form two groups of nearly equal size: which one is honest is not known.
    site_weights_ : array (one per site)
        Their weights in the gradient, on average over the rounds, in the order of ``sites_``; equal without rounds.
    resilience_ : structured array (one per number of malicious sites) or None
        With an aggregator, and rounds: ``malicious`` = 1, 2, ... below half of the sites, ``radius`` of the smallest
        ball round a site's last gradient that holds all others, and ``bound``. Let at most `malicious` sites be
        malicious. If the honest gradients lie within two radii of one of them, the combined gradient was within `bound`
        of that one. In units of the median length of a site's gradient.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Up per site: n r + r^2 + 3 numbers in each round; before that n r numbers once (with an aggregator) or in each of
    `power_iterations` rounds, and q r more where tasks have rows at several sites; after it 2 r^2 + 3 numbers, and then
    q (r^2 + 2 r + 3) numbers (sums) or the coefficients of its tasks. Before that, some replies reveal much about
    single ``b_k``: the q r numbers of the start, the second moment of a site with one task, and the normal equations
    that choose ``rank="auto"`` by sums where tasks have rows at several sites.

    Memory at a site: its data, and a copy of the rows unless they lie task after task. The smallest tasks come first,
    and tasks of equal size by name. Also a block of 6 MiB or of the largest task, in double precision, and n times its
    number of tasks.

    With an aggregator fewer than half of the sites may be malicious (the theory has 40 %). The harm is bounded by a
    multiple of how much honest sites differ, see ``resilience_``. If the start fits the rows of more than half of the
    sites that reply in the end better, it is returned, with a warning. That can happen near one half, where sites have
    tasks of their own.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024.

    Examples
    --------
    >>> from fedspan.datasets import make_few_shot_tasks
    >>> data = make_few_shot_tasks(20, 30, 2, 40, 4, seed=0)
    >>> model = FedFewShotRegressor(2).fit(data.X, data.y, task=data.task, sites=data.sites)
    >>> model.representation_.shape, model.coef_.shape, bool(np.allclose(model.coef_, data.coef, atol=1e-6))
    ((20, 2), (30, 20), True)
    >>> new = make_few_shot_tasks(20, 2, 2, 5, 1, basis=data.basis, seed=1)     # five rows, twenty features
    >>> bool(np.allclose(model.adapt(new.X[:5], new.y[:5]).coef, new.coef[0], atol=1e-6))
    True
    """

    rank: int | str = "auto"
    _: KW_ONLY
    aggregator: Aggregator | None = None
    step_size: float = 1.0
    iterations: int = 100
    tol: float = 1e-8
    fit_intercept: bool = False
    share_coefs: bool = True
    ridge: float | str = "auto"
    truncation: float = 9.0
    power_iterations: int = 10
    max_rank: int = 16
    sample_split: bool = False
    init: str = "auto"
    groups: int | None = None
    output: str = "eigenspace"
    threshold: float | None = 10.0

    def fit(self, X: Any, y: Any = None, *, task: Any = None, sites: Any = None) -> Self:
        """Learn from a table (``task`` and ``sites`` name those of each row) or from a federation that has tasks.

        Without ``task`` all rows are of one task, number 0.
        """
        checks.check_parameters(self.get_params(deep=False), type(self)().get_params(deep=False))
        if isinstance(X, Federation):
            if y is not None:
                raise InputError("y=... goes with a table: a federation has its targets already")
        else:
            y, task = checks.checked_columns(X, y, task, type(self).__name__)
        with self._fitting(X, y, sites, task=task, ensure_min_samples=2) as fed:
            if self.aggregator is None or not isinstance(X, Federation):  # a malicious site could stop the run here
                refuse_bad_values(fed, self._names())
                checks.refuse_bad_targets(fed)
            tasks = agree_on_tasks(fed, intercept=self.fit_intercept, resilient=self.aggregator is not None)
            checks.warn_of_data(tasks, self.fit_intercept, resilient=self.aggregator is not None)
            self._keep(self._learn(fed, tasks), tasks)
            if self.share_coefs:
                self._learn_coefs(fed, tasks)
            elif hasattr(self, "tasks_"):
                del self.tasks_, self.loadings_, self.intercept_, self.task_errors_
        return self

    def _single_replies(self) -> str | None:
        return ""

    def predict(self, X: Any, task: Any = None) -> NDArray[np.float64]:
        """Predict rows (m, n) of `task`: one label, a label for each row, or a result of `adapt`.

        It may be left out where the model has one task only.
        """
        check_is_fitted(self)
        table = self._validated(X)
        if isinstance(task, NewTask):
            return task.predict(table)
        if not hasattr(self, "tasks_"):
            raise InputError(_STAYED)
        which = checks.task_numbers(task, self.tasks_, len(table))
        T = table.astype(np.float64) @ self.representation_
        return cast(NDArray[np.float64], np.einsum("mr,mr->m", T, self.loadings_[which]) + self.intercept_[which])

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R^2 of all rows together, each with its `sample_weight`."""
        return float(r2_score(y, self.predict(X, task), sample_weight=sample_weight))

    def adapt(self, X_new: Any, y_new: Any, *, ridge: float | str = 0.0) -> NewTask:
        """Learn a new task from a few rows, by least squares in r dimensions.

        Parameters
        ----------
        X_new : array (m, n)
            m of at least r (and one more with an intercept), unless there is a ridge. Below twice that a warning states
            the error to expect.
        y_new : array (m,)
        ridge : float or "auto", default=0.0
            Penalty on ``||b||^2``. ``"auto"`` suits a task like the others: ``noise_variance_`` over the mean square of
            their loadings.

        Returns
        -------
        task : NewTask
            Has ``coef``, ``intercept``, ``expected_error``, ``predict``; `predict` of this model takes it, too.
        """
        check_is_fitted(self)
        table = self._validated(X_new).astype(np.float64)
        target, _ = checks.checked_columns(table, y_new, None, type(self).__name__)
        refuse_extreme(table, "X", "features")
        refuse_extreme(target, "y", "targets")
        return learned_task(table, target.astype(np.float64), self._prior(), ridge)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of each task, ``U b_k`` (q, n)."""
        if hasattr(self, "representation_") and not hasattr(self, "loadings_"):
            raise AttributeError(_STAYED)
        return np.asarray(self.loadings_ @ self.representation_.T)

    def _learn(self, fed: Federation, tasks: Tasks) -> Representation:
        names = ("iterations", "power_iterations", "max_rank", "sample_split")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        shared |= {name: float(getattr(self, name)) for name in ("step_size", "tol", "truncation")}
        shared["rank"] = None if self.rank == "auto" else int(self.rank)
        shared |= {"n_columns": self.n_features_in_, "intercept": bool(self.fit_intercept), "tasks": tasks}
        if self.aggregator is None:
            return altgdmin(fed, **shared)
        own = {name: getattr(self, name) for name in checks.RESILIENT}
        return byz_altgdmin(fed, aggregator=self.aggregator, **own, **shared)

    def _learn_coefs(self, fed: Federation, tasks: Tasks) -> None:
        unknowns, chosen = self.rank_ + bool(self.fit_intercept), self.ridge != "auto"
        ridge = float(self.ridge) if chosen else self._prior().ridge
        checks.warn_of_few_rows(tasks, unknowns, ridge, pooled=self.aggregator is None, chosen=chosen)
        settings: dict[str, Any] = {"U": self.representation_, "intercept": bool(self.fit_intercept), "ridge": ridge}
        settings["below"] = MOST_ROWS if chosen else 2 * unknowns
        if self.aggregator is None:
            coefs = pooled_coefs(fed, tasks=tasks.labels, **settings)
        else:
            coefs = median_coefs(fed, tasks=tasks, **settings)
        lost = len(tasks.labels) - int(positions(tasks.labels, coefs.tasks)[1].sum())
        if lost:
            warn(f"{lost} of {len(tasks.labels)} tasks have no coefficients: their sites did not answer; use adapt")
        self.tasks_, self.loadings_ = coefs.tasks, coefs.loadings
        self.intercept_, self.task_errors_ = coefs.intercepts, coefs.errors

    def _prior(self) -> TaskPrior:
        noise = (self.noise_variance_, self.representation_error_, self.feature_variance_)
        return TaskPrior(self.representation_, self.loadings_moment_, *noise, bool(self.fit_intercept))

    def _keep(self, learned: Representation, tasks: Tasks) -> None:
        self.representation_, self.rank_ = learned.basis, learned.basis.shape[1]
        self.resilience_ = learned.resilience
        self.n_iter_, self.noise_variance_, self.loadings_moment_ = learned.iterations, learned.loss, learned.moment
        means = [spread / max(tasks.uneven[site], 1e-300) for site, spread in tasks.spread.items()]
        self.feature_variance_ = float(np.median(means))
        n, r = learned.basis.shape
        self.representation_error_ = 0.0
        if self.feature_variance_ > 0.0:
            self.representation_error_ = learned.loss * r * (n - r) / (learned.free * self.feature_variance_)
        if self.iterations and learned.moved > self.tol > 0.0:
            warn(
                f"the representation still moved by {learned.moved:.1e} in the last of {learned.iterations} rounds, "
                f"more than tol={self.tol:g}: take more iterations, whiter features, or tasks of one scale",
                ConvergenceWarning,
            )
        # Without any round no site has a weight: all that reported their tasks count alike.
        weights = learned.weights or dict.fromkeys(tasks.held, 1.0 / len(tasks.held))
        self.site_weights_ = np.array([weights.get(site, 0.0) for site in self.sites_])
        enough = 0.5 / len(weights)
        trusted = {site for site, weight in weights.items() if weight >= enough}
        self.sites_trusted_ = tuple(sorted(trusted.difference(learned.doubtful)))
