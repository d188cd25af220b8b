"""Grid search on a federation: cross-validate every combination of parameters, and fit the best one on all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from fedspan.checks import true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.model_selection.cross_validation import cross_validate
from fedspan.model_selection.folds import Folds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class GridSearch:
    """What a grid search found.

    Attributes
    ----------
    parameters : list of dict
        Every combination.
    scores : array (combinations, folds)
        The scores of the rows held out.
    best : int
        The combination with the highest mean score; of several, the first.
    model : estimator or None
        Fitted with the best parameters on all rows.
    """

    parameters: list[dict[str, Any]]
    scores: NDArray[np.float64]
    best: int
    model: Any

    @property
    def best_parameters(self) -> dict[str, Any]:
        """The parameters with the highest mean score."""
        return self.parameters[self.best]

    @property
    def best_score(self) -> float:
        """The highest mean score. It is a little too high for new rows, because it is the highest of several."""
        return float(self.scores[self.best].mean())

    def to_frame(self) -> pd.DataFrame:
        """Return a table: the parameters, mean and deviation of the scores over folds, the best first."""
        import pandas as pd

        frame = pd.DataFrame(self.parameters)
        frame["mean_score"], frame["std_score"] = self.scores.mean(axis=1), self.scores.std(axis=1)
        return frame.sort_values("mean_score", ascending=False, kind="stable")


def grid_search(
    model: Any,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    fed: Federation,
    cv: int | str | Folds = 5,
    *,
    scoring: Any = None,
    refit: bool = True,
) -> GridSearch:
    """Cross-validate a model with every combination of parameters.

    Parameters
    ----------
    model : estimator or pipeline
    grid : dict of parameter name to values, or a list of such
        As in scikit-learn; parameters of a pipeline's steps are ``step__parameter``.
    fed, cv
        As of `cross_validate`. All combinations see the same folds.
    scoring : str or callable, optional
        One score, as of `cross_validate`.
    refit : bool, default=True
        Fit the best combination on all rows.

    Examples
    --------
    >>> import fedspan as fs
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(200, 6))
    >>> fed = fs.federate(rows, sites=np.arange(200) % 4)
    >>> grid_search(fs.FedPCA(), {"n_components": [1, 2, 3]}, fed, cv=5).best_parameters
    {'n_components': 2}
    """
    true_or_false("refit", refit)
    if scoring is not None and not isinstance(scoring, str) and not callable(scoring):
        raise InputError(f"scoring={scoring!r} must be one name or function: a grid search chooses by one score")
    try:
        parameters = [dict(one) for one in ParameterGrid(grid)]
    except (TypeError, ValueError) as error:
        raise InputError(f"grid={grid!r} must be a dict of lists of values, or a list of such: {error}") from None
    if not parameters:
        raise InputError("the grid has no combination: give each parameter at least one value")
    scores = [
        cross_validate(clone(model).set_params(**chosen), fed, cv, scoring=scoring)["test_score"]
        for chosen in parameters
    ]
    mean = np.mean(scores, axis=1)
    best = int(np.argmax(np.where(np.isnan(mean), -np.inf, mean)))
    fitted = clone(model).set_params(**parameters[best]).fit(fed) if refit else None
    return GridSearch(parameters, np.array(scores), best, fitted)
