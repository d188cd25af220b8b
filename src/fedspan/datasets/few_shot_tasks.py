"""Many related regression tasks: the low-rank model of the AltGDmin papers."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of, real_number, whole_number
from fedspan.datasets.bunch import Bunch
from fedspan.datasets.dataset_checks import generator
from fedspan.datasets.splitters import site_names
from fedspan.errors import InputError


def make_few_shot_tasks(
    n_features: int = 200,
    n_tasks: int = 200,
    rank: int = 4,
    rows_per_task: int = 200,
    n_sites: int = 10,
    *,
    noise: float = 0.0,
    split: Literal["rows", "tasks"] = "rows",
    basis: NDArray[np.float64] | None = None,
    seed: int,
) -> Bunch:
    """Draw linear tasks ``y_k = X_k U b_k + noise`` that share one representation U.

    U is a QR factor of a Gaussian matrix, and every entry of ``b_k`` and ``X_k`` is standard normal.

    Parameters
    ----------
    n_features, n_tasks, rank, rows_per_task, n_sites : int
        n, q, r, m and L of the papers; ``rank <= min(n_features, n_tasks)``.
    noise : float, default=0.0
        Standard deviation of the noise.
    split : {"rows", "tasks"}, default="rows"
        ``"rows"``: every site sees every task, and the rows of each task are cut into ``n_sites`` blocks as
        equal as possible. ``"tasks"``: every task lives at one site, and the tasks are cut into such blocks.
    basis : array of shape (n_features, rank), optional
        Use this orthonormal representation instead of drawing one: new tasks for a representation already
        learned.
    seed : int
        Decides everything that is drawn.

    Returns
    -------
    Bunch
        ``X`` (n_tasks * rows_per_task, n_features), task after task; ``y``; ``task``, the task's number a
        row; ``sites``, one label a row; the truth: ``basis`` (n_features, rank), ``loadings`` (n_tasks, rank)
        with b_k as rows, and ``coef`` (n_tasks, n_features) with ``U b_k`` as rows.

    Notes
    -----
    ``X`` takes ``8 * n * q * m`` bytes: 64 MB by default, 570 MB for n = q = 600, m = 198.

    Examples
    --------
    >>> made = make_few_shot_tasks(10, 6, 2, 5, 3, seed=0)
    >>> made.X.shape, made.basis.shape, made.coef.shape
    ((30, 10), (10, 2), (6, 10))
    >>> np.allclose(made.y, (made.X * made.coef[made.task]).sum(axis=1))
    True
    """
    n = whole_number("n_features", n_features, 1)
    q = whole_number("n_tasks", n_tasks, 1)
    r = whole_number("rank", rank, 1, min(n, q), why=", the smaller of n_features and n_tasks")
    m = whole_number("rows_per_task", rows_per_task, 1)
    one_of("split", split, ("rows", "tasks"))
    shared, what = (m, "row of each task") if split == "rows" else (q, "task")
    n_sites = whole_number("n_sites", n_sites, 1, shared, why=f", since every site needs a {what}")
    noise = real_number("noise", noise, least=0)
    rng = generator(seed)

    U = np.linalg.qr(rng.standard_normal((n, r)))[0] if basis is None else _checked(basis, n, r)
    B = rng.standard_normal((q, r))
    X = rng.standard_normal((q, m, n))
    y = np.einsum("kmr,kr->km", X @ U, B)
    if noise:
        y += noise * rng.standard_normal((q, m))

    site_of = site_names(n_sites)[np.sort(np.arange(shared) % n_sites)]
    return Bunch(
        name=f"{q:,} linear tasks with a representation of rank {r}",
        X=X.reshape(q * m, n),
        y=y.ravel(),
        task=np.repeat(np.arange(q), m),
        sites=np.tile(site_of, q) if split == "rows" else np.repeat(site_of, m),
        basis=U,
        loadings=B,
        coef=B @ U.T,
        source=f"make_few_shot_tasks, seed {seed}",
    )


def _checked(basis: NDArray[np.float64], n: int, r: int) -> NDArray[np.float64]:
    U = np.array(basis, dtype=np.float64)
    if U.shape != (n, r):
        raise InputError(f"basis has shape {U.shape}, but must have shape (n_features, rank) = ({n}, {r}).")
    if not np.allclose(U.T @ U, np.eye(r), rtol=0, atol=1e-8):
        raise InputError("basis must have orthonormal columns (U'U = I to 1e-8).")
    return U
