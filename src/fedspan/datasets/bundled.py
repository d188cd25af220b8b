"""Two small data sets that come with scikit-learn, so that they are always there."""

from __future__ import annotations

import numpy as np

from fedspan.datasets.bunch import Bunch, Source, dataset

_DIGITS = Source(
    name="Digits, 8 x 8",
    publisher="UCI Machine Learning Repository, E. Alpaydin and C. Kaynak (1998), as shipped with scikit-learn",
    where="scikit-learn",
    terms="CC BY 4.0 (check with the publisher before redistribution).",
)
_DIGITS_ABOUT = (
    "Handwritten digits, one 8 x 8 image a row; a pixel counts the dark points in a 4 x 4 block, 0 to 16. "
    "This is the test part of the publisher's set alone. Three pixels are 0 in every image, so "
    "standardising must guard against zero variance."
)
_CANCER = Source(
    name="Breast cancer (diagnostic)",
    publisher="UCI Machine Learning Repository, W. H. Wolberg, W. N. Street and O. L. Mangasarian (1995), "
    "as shipped with scikit-learn",
    where="scikit-learn",
    terms="CC BY 4.0 (check with the publisher before redistribution).",
)
_CANCER_ABOUT = (
    "Measures of cell nuclei: mean, standard error and worst value of ten quantities. Class 0 is malignant "
    "and class 1 benign. The columns' scales differ by a factor of more than 10,000."
)


def load_digits() -> Bunch:
    """Load the 8 x 8 digits that come with scikit-learn.

    Returns
    -------
    Bunch
        ``data`` (1797, 64) float64; ``images`` (1797, 8, 8), a view of it; ``target`` (1797,), the digit.

    Examples
    --------
    >>> digits = load_digits()
    >>> digits.data.shape, digits.images.shape
    ((1797, 64), (1797, 8, 8))
    """
    from sklearn import datasets

    raw = datasets.load_digits()
    return dataset(
        _DIGITS,
        _DIGITS_ABOUT,
        data=raw.data,
        target=raw.target,
        feature_names=np.array(raw.feature_names),
        target_names=raw.target_names.astype(str),
        images=raw.data.reshape(-1, 8, 8),
    )


def load_breast_cancer() -> Bunch:
    """Load the diagnostic breast cancer data that come with scikit-learn.

    Returns
    -------
    Bunch
        ``data`` (569, 30) float64; ``target`` (569,): 0 malignant, 1 benign.

    Examples
    --------
    >>> print(load_breast_cancer().describe())
    Breast cancer (diagnostic)
      rows x features: 569 x 30, float64
      missing values:  none
      values:          0 to 4254
      classes:         malignant (212), benign (357)
      source:          UCI Machine Learning Repository, W. H. Wolberg, ...
      terms:           CC BY 4.0 (check with the publisher before redistribution).
    """
    from sklearn import datasets

    raw = datasets.load_breast_cancer()
    return dataset(
        _CANCER,
        _CANCER_ABOUT,
        data=raw.data,
        target=raw.target,
        feature_names=np.array(raw.feature_names),
        target_names=np.array(raw.target_names).astype(str),
    )
