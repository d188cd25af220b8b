"""Scores of fitted models on federations, by scikit-learn's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from fedspan.anomaly.detector import FedDetector
from fedspan.anomaly.scores import subspace_score
from fedspan.clustering.k_means import FedKMeans
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.model_selection.score_sums import error_totals, hit_rate, roc_area, value_totals, verdict_counts
from fedspan.pca.estimator import FedPCA

Score = Callable[[Any, Federation], float]


def r2(model: Any, fed: Federation) -> float:
    """Return R^2 of predictions: 1 minus squared errors over squares about the mean; 1 or 0 where y is constant."""
    found = error_totals(predicted(model, fed))
    if not found.spread:
        return 1.0 if not found.squared else 0.0
    return 1.0 - found.squared / found.spread


def neg_mean_squared_error(model: Any, fed: Federation) -> float:
    """Return minus the mean squared error of predictions."""
    found = error_totals(predicted(model, fed))
    return -found.squared / found.n


def neg_mean_absolute_error(model: Any, fed: Federation) -> float:
    """Return minus the mean absolute error of predictions."""
    found = error_totals(predicted(model, fed))
    return -found.absolute / found.n


def accuracy(model: Any, fed: Federation) -> float:
    """Return the share of rows whose class is predicted."""
    return hit_rate(predicted(model, fed))


def balanced_accuracy(model: Any, fed: Federation) -> float:
    """Return the mean of the shares of outliers that a detector flags, and of normal rows that it does not."""
    found = verdict_counts(predicted(model, fed))
    if not found.outliers or not found.normal:
        raise InputError(f"{found.outliers} of the held-out rows are outliers, and both kinds are needed")
    return (found.found / found.outliers + 1 - found.flagged / found.normal) / 2


def roc_auc(model: Any, fed: Federation) -> float:
    """Return the area under the ROC curve of a detector, to 1e-4."""
    last, seen = last_step(model, fed)
    if not isinstance(last, FedDetector):
        raise InputError(f"scoring='roc_auc' is for detectors, and {type(last).__name__} is not one")
    return roc_area(last.score_samples(seen))


def log_likelihood(model: Any, fed: Federation) -> float:
    """Return the mean log-likelihood of rows under probabilistic PCA, as scikit-learn's ``PCA.score``."""
    last, seen = last_step(model, fed)
    if not isinstance(last, FedPCA):
        raise InputError(f"scoring='log_likelihood' is for FedPCA, and the model is a {type(last).__name__}")
    d, k = last.n_features_in_, last.n_components_
    noise, spread = last.noise_variance_, last.explained_variance_
    if (noise <= 0 and k < d) or spread[-1] <= 0:
        raise InputError(f"the likelihood needs some variance outside the {k} components: keep fewer")
    parameters = {"mean": last.mean_, "scale": last.scale_, "components": last.components_.astype(np.float64)}
    outside = 1 / noise if k < d else 0.0
    n, total = value_totals(
        seen.apply(subspace_score, columns=last._names(), **parameters, inside=1 / spread, outside=outside)
    )
    log_det = float(np.sum(np.log(spread))) + ((d - k) * float(np.log(noise)) if k < d else 0.0)
    if last.scale_ is not None:
        log_det += 2 * float(np.sum(np.log(last.scale_)))
    return -0.5 * (d * float(np.log(2 * np.pi)) + log_det + total / n)


def neg_inertia(model: Any, fed: Federation) -> float:
    """Return minus the sum of squared distances to the closest centre, as scikit-learn's ``KMeans.score``."""
    last, seen = last_step(model, fed)
    if not isinstance(last, FedKMeans):
        raise InputError(f"scoring='neg_inertia' is for FedKMeans, and the model is a {type(last).__name__}")
    return -value_totals(last.transform(seen), of="least squares")[1]


SCORES: dict[str, Score] = {
    one.__name__: one
    for one in (
        *(r2, neg_mean_squared_error, neg_mean_absolute_error, accuracy),
        *(balanced_accuracy, roc_auc, log_likelihood, neg_inertia),
    )
}


def chosen_scores(model: Any, scoring: Any) -> dict[str, Score]:
    """Return the scores by the name that results have: ``"score"`` for a single one."""
    if scoring is None:
        scoring = _usual(model)
    if isinstance(scoring, str) or callable(scoring):
        return {"score": _score(scoring)}
    if isinstance(scoring, Mapping) and scoring:
        return {str(name): _score(one) for name, one in scoring.items()}
    if isinstance(scoring, Iterable):
        names = list(scoring)
        if names and all(isinstance(one, str) for one in names):
            return {one: _score(one) for one in names}
    raise InputError(
        f"scoring={scoring!r} must be a name, a function of model and federation, a list of names, or a dict: {_NAMES}"
    )


_NAMES = f"the names are {', '.join(SCORES)}"


def _score(one: Any) -> Score:
    if callable(one):
        found: Score = one
        return found
    if one not in SCORES:
        raise InputError(f"scoring={one!r} is unknown: {_NAMES}; or give a function of model and federation")
    return SCORES[one]


def _usual(model: Any) -> str:
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    for kind, name in ((FedDetector, "roc_auc"), (FedPCA, "log_likelihood"), (FedKMeans, "neg_inertia")):
        if isinstance(last, kind):
            return name
    if is_classifier(last) or is_regressor(last):
        return "accuracy" if is_classifier(last) else "r2"
    raise InputError(f"{type(last).__name__} has no usual score: give scoring=..., a function of model and federation")


def last_step(model: Any, fed: Federation) -> tuple[Any, Federation]:
    """Return the last step of a pipeline, or the model itself, and the federation as it sees it."""
    if not hasattr(model, "steps"):
        return model, fed
    for _, one in model.steps[:-1]:
        fed = fed if one in (None, "passthrough") else one.transform(fed)
    return model.steps[-1][1], fed


def predicted(model: Any, fed: Federation) -> Federation:
    """Return the federation whose sites see the model's predictions in place of their rows."""
    last, seen = last_step(model, fed)
    found = last.predict(seen)
    if not isinstance(found, Federation):
        raise InputError(f"{type(last).__name__}.predict takes no federation: give scoring=... a function of your own")
    return found
