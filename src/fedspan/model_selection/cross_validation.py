"""Cross-validation on a federation: sites hold rows back, or are left out whole, and scores come from sums."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from fedspan.checks import true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.model_selection.folds import Folds, chosen_folds
from fedspan.model_selection.scoring import chosen_scores


def cross_validate(
    model: Any,
    fed: Federation,
    cv: int | str | Folds = 5,
    *,
    scoring: Any = None,
    return_train_score: bool = False,
    return_estimator: bool = False,
) -> dict[str, Any]:
    """Fit and score a model on each fold of a federation.

    Parameters
    ----------
    model : estimator or pipeline
        It is cloned for each fold, and stays as it is.
    fed : Federation
    cv : int, "sites", RowFolds or SiteFolds, default=5
        A number: every site divides its own rows into this number of folds. ``"sites"``: each site is left out in turn.
    scoring : str, callable, list of str, or dict, optional
        ``"r2"``, ``"neg_mean_squared_error"``, ``"neg_mean_absolute_error"``, ``"accuracy"``, for detectors
        ``"roc_auc"`` and ``"balanced_accuracy"`` (``y`` is 1 or True for outliers, or -1 for outliers and 1 for
        others), ``"log_likelihood"`` for `FedPCA`, ``"neg_inertia"`` for `FedKMeans`; or a function of model and
        federation. Default: R^2 of regressors, the accuracy of classifiers, and what the model is for otherwise.
    return_train_score, return_estimator : bool, default=False
        Whether the result has scores of the rows that were trained on, and the fitted models.

    Returns
    -------
    dict
        As scikit-learn's: ``"test_score"`` (or ``"test_<name>"`` of several), ``"fit_time"`` and ``"score_time"``, one
        entry per fold; ``"left_out"`` names the sites that were left out.

    Notes
    -----
    Leaves a site: what each fit sends, its number of rows, and sums of errors or counts over the rows held out. The
    difference of two fits' sums is about the rows of a fold. An owner allows folds of rows by the id of their transform
    (``transforms = ["fedspan", "model_selection.fold"]`` in ``site.toml``).

    Examples
    --------
    >>> import fedspan as fs
    >>> fed = fs.federate(np.arange(40.0).reshape(20, 2) % 7, sites=np.arange(20) % 2)
    >>> cross_validate(fs.FedKMeans(2), fed, cv=3)["test_score"].round(3)
    array([-44.281, -23.318, -50.541])
    """
    if not isinstance(fed, Federation):
        raise InputError("cross_validate takes a federation: make one of tables with fedspan.federate(X, y, sites=...)")
    true_or_false("return_train_score", return_train_score)
    true_or_false("return_estimator", return_estimator)
    folds, scores = chosen_folds(cv), chosen_scores(model, scoring)
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for split in folds.splits(fed, classes=is_classifier(model)):
        began = time.perf_counter()
        fitted = clone(model).fit(split.training)
        found["fit_time"].append(time.perf_counter() - began)
        began = time.perf_counter()
        for name, score in scores.items():
            found[f"test_{name}"].append(float(score(fitted, split.held)))
        found["score_time"].append(time.perf_counter() - began)
        if return_train_score:
            for name, score in scores.items():
                found[f"train_{name}"].append(float(score(fitted, split.training)))
        if return_estimator:
            found["estimator"].append(fitted)
        if split.left_out:
            found["left_out"].append(split.left_out)
    whole = ("estimator", "left_out")
    return {name: values if name in whole else np.array(values) for name, values in found.items()}
