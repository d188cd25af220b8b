"""Sites whose rows lie near one subspace: the spiked-covariance model of the subspace-median tables."""

from __future__ import annotations

import numpy as np

from fedspan.checks import real_number, whole_number
from fedspan.datasets.bunch import Bunch
from fedspan.datasets.dataset_checks import generator
from fedspan.datasets.splitters import site_names
from fedspan.errors import InputError


def make_subspace_sites(
    n_features: int = 1000,
    rank: int = 60,
    n_sites: int = 3,
    rows_per_site: int = 600,
    *,
    spike: float = 15.0,
    step: float = 1.0,
    tail: float = 0.0,
    seed: int,
) -> Bunch:
    """Draw rows from N(0, U S U'), where the first ``rank`` columns of U are to be found.

    S holds ``spike`` (rank times), then ``step`` once, then ``tail``. The defaults are the "rank r+1" table
    of the subspace-median experiments; ``tail=0.015`` gives a spectrum like its "full rank" table, whose tail
    is not published.

    Parameters
    ----------
    n_features : int, default=1000
        n, the dimension.
    rank : int, default=60
        r, below ``n_features``.
    n_sites : int, default=3
        L.
    rows_per_site : int, default=600
        Rows of each site.
    spike, step, tail : float
        The eigenvalues, ``spike > step >= tail >= 0``.
    seed : int
        Decides the subspace and the rows.

    Returns
    -------
    Bunch
        ``X`` (n_sites * rows_per_site, n_features), site after site; ``sites``, one label a row; the truth:
        ``basis`` (n_features, rank), orthonormal, and ``eigenvalues`` (n_features,), falling.

    Notes
    -----
    Time is of order rows x features x rank. The covariance is ``tail I`` plus a part of rank r+1, so no n x n
    matrix is needed; memory is that of ``X``, twice with a tail. The span of a QR factor of a Gaussian
    n x (r+1) matrix is distributed as that of the first r+1 columns of an n x n one.

    Examples
    --------
    >>> made = make_subspace_sites(20, 3, 2, 50, seed=0)
    >>> made.X.shape, made.basis.shape, np.linalg.matrix_rank(made.X).item()
    ((100, 20), (20, 3), 4)
    """
    n = whole_number("n_features", n_features, 2)
    r = whole_number("rank", rank, 1, n - 1, why=", since one more direction has the eigenvalue step")
    n_sites = whole_number("n_sites", n_sites, 1)
    rows_per_site = whole_number("rows_per_site", rows_per_site, 1)
    spike, step, tail = (
        real_number(name, value, least=0) for name, value in (("spike", spike), ("step", step), ("tail", tail))
    )
    if not spike > step >= tail:
        raise InputError(
            f"spike={spike:g}, step={step:g}, tail={tail:g} must satisfy spike > step >= tail, "
            "or the subspace is not that of the largest eigenvalues."
        )
    rng = generator(seed)
    rows = n_sites * rows_per_site
    U, _ = np.linalg.qr(rng.standard_normal((n, r + 1)))
    eigenvalues = np.concatenate([np.full(r, spike), [step], np.full(n - r - 1, tail)])
    X = (rng.standard_normal((rows, r + 1)) * np.sqrt(eigenvalues[: r + 1] - tail)) @ U.T
    if tail:
        X += np.sqrt(tail) * rng.standard_normal((rows, n))
    return Bunch(
        name=f"rows near a subspace of rank {r}",
        X=X,
        sites=np.repeat(site_names(n_sites), rows_per_site),
        basis=np.ascontiguousarray(U[:, :r]),
        eigenvalues=eigenvalues,
        source=f"make_subspace_sites, seed {seed}",
    )
