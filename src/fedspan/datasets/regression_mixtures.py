"""Sites that follow one of a few linear models: the mixture of the two-phase clustered regression paper."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedspan.checks import one_of, real_number, whole_number
from fedspan.datasets.bunch import Bunch
from fedspan.datasets.dataset_checks import generator
from fedspan.datasets.splitters import site_names
from fedspan.errors import InputError


class _Configuration(NamedTuple):
    sizes: NDArray[np.intp]
    proportions: tuple[float, ...]


_EQUAL = (1 / 3, 1 / 3, 1 / 3)
_MANY_SMALL = np.repeat([10, 50], [900, 20])
CONFIGURATIONS = {
    "C1": _Configuration(np.repeat(50, 200), _EQUAL),
    "C2": _Configuration(_MANY_SMALL, _EQUAL),
    "C3": _Configuration(_MANY_SMALL, (0.2, 0.3, 0.5)),
}


def make_mixed_regression(
    configuration: Literal["C1", "C2", "C3"] | None = None,
    *,
    sizes: ArrayLike | None = None,
    proportions: ArrayLike | None = None,
    n_clusters: int = 3,
    n_features: int = 100,
    noise: float = 0.2,
    seed: int,
) -> Bunch:
    """Draw sites with ``y = X theta_j + noise``, where ``j`` is the site's hidden cluster.

    ``theta_j`` has independent N(0, 1/d) entries, so its length is about 1, and ``X`` independent N(0, 1)
    entries. Every site's cluster is drawn on its own with probabilities ``proportions``, so with few sites a
    cluster may stay empty.

    Parameters
    ----------
    configuration : {"C1", "C2", "C3"}, optional
        The paper's settings, 10,000 rows and three clusters each. C1: 200 sites of 50 rows. C2: 900 sites of
        10 rows, then 20 sites of 50. C3: as C2, with proportions 0.2, 0.3, 0.5. It stands for ``sizes`` and
        ``proportions``.
    sizes : array of int, shape (n_sites,), optional
        Rows of each site; needed without ``configuration``.
    proportions : array of float, shape (n_clusters,), optional
        Probabilities of the clusters, summing to 1; by default equal.
    n_clusters : int, default=3
        k.
    n_features : int, default=100
        d.
    noise : float, default=0.2
        Standard deviation of the noise.
    seed : int
        Decides everything that is drawn.

    Returns
    -------
    Bunch
        ``X`` (n, n_features), site after site; ``y``; ``sites``, one label a row; the truth: ``coef``
        (n_clusters, n_features), ``labels`` (n_sites,), the cluster of each site in the order of the sites'
        names, and ``proportions`` (n_clusters,).

    Examples
    --------
    >>> made = make_mixed_regression("C2", seed=0)
    >>> made.X.shape, len(made.labels), made.coef.shape
    ((10000, 100), 920, (3, 100))
    >>> make_mixed_regression(sizes=[5, 7], n_clusters=2, n_features=3, seed=0).X.shape
    (12, 3)
    """
    k = whole_number("n_clusters", n_clusters, 1)
    d = whole_number("n_features", n_features, 1)
    noise = real_number("noise", noise, least=0)
    rows, p = _setting(configuration, sizes, proportions, k)
    rng = generator(seed)

    theta = rng.standard_normal((k, d)) / np.sqrt(d)
    labels = rng.choice(k, size=len(rows), p=p)
    X = rng.standard_normal((int(rows.sum()), d))
    y = np.einsum("nd,nd->n", X, theta[np.repeat(labels, rows)])
    if noise:
        y += noise * rng.standard_normal(len(y))
    return Bunch(
        name=f"mixture of {k} linear models" + (f", configuration {configuration}" if configuration else ""),
        X=X,
        y=y,
        sites=np.repeat(site_names(len(rows)), rows),
        coef=theta,
        labels=labels,
        proportions=p,
        source=f"make_mixed_regression, seed {seed}",
    )


def _setting(
    configuration: Any, sizes: ArrayLike | None, proportions: ArrayLike | None, k: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    if configuration is not None:
        one_of("configuration", configuration, tuple(CONFIGURATIONS))
        if sizes is not None or proportions is not None:
            raise InputError(
                f"configuration={configuration!r} already sets sizes and proportions: give one or the other."
            )
        sizes, proportions = CONFIGURATIONS[configuration]
    if sizes is None:
        raise InputError("make_mixed_regression needs a configuration ('C1', 'C2' or 'C3') or the sizes of the sites.")
    rows = np.asarray(sizes)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu" or rows.min() < 1:
        raise InputError("sizes must be a list of whole numbers of at least 1, one for each site.")
    p = np.full(k, 1 / k) if proportions is None else np.array(proportions, dtype=np.float64)
    if p.shape != (k,) or not (p >= 0).all() or not np.isclose(p.sum(), 1.0, rtol=0, atol=1e-8):
        raise InputError(f"proportions={p.tolist()} must be n_clusters={k} probabilities that sum to 1.")
    return rows.astype(np.intp), p / p.sum()
