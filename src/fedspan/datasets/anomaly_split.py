"""Cutting a table of normal and attack rows into training and test parts."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedspan.checks import one_of, whole_number
from fedspan.datasets.bunch import Bunch
from fedspan.datasets.dataset_checks import generator
from fedspan.errors import InputError


def anomaly_split(
    bunch: Bunch,
    train_normals: int,
    *,
    test_normals: int | None = None,
    attacks: int | None = None,
    order: Literal["random", "first", "last"] = "random",
    seed: int = 0,
) -> Bunch:
    """Train on normal rows alone, test on other normal rows and attacks.

    Parameters
    ----------
    bunch : Bunch
        With ``data`` (n, d) and ``target`` (n,), where 0 is normal and everything else an attack.
    train_normals : int
        Number of normal rows to train on.
    test_normals : int, optional
        Number of normal rows to test on; by default all others.
    attacks : int, optional
        Number of attack rows to test on, drawn at random without repetition; by default all.
    order : {"random", "first", "last"}, default="random"
        Which normal rows train: ``"random"``: a seeded shuffle, train first, then test. ``"first"``: the
        first in file order, and the last ones test. ``"last"``: the last in file order, and the first ones
        test. A split by file order shifts the distribution where the file's order has a meaning: state which
        one was used.
    seed : int, default=0
        Decides the shuffle and, independently of it, the draw of attacks.

    Returns
    -------
    Bunch
        ``X_train`` (train_normals, d), ``X_test`` (m, d) with the normal rows before the attacks, ``y_test`` (m,) with
        0 normal and 1 attack, and ``feature_names``. ``train_rows`` and ``test_rows`` are the positions in ``bunch``,
        to cut its other arrays alike.

    Notes
    -----
    The splits used with the FedPCA papers, whose own training rows are not in these files:
    UNSW-NB15 ``anomaly_split(unsw, 17_000)`` (20,000 normal test rows, 45,332 attacks), TON_IoT
    ``anomaly_split(ton, 40_000, attacks=56_557)`` (10,000 normal test rows). Their shifted versions have
    ``order="first"`` or ``"last"``.

    Examples
    --------
    Zeros are normal, the other digits are not:

    >>> from fedspan.datasets import load_digits
    >>> split = anomaly_split(load_digits(), 100, attacks=50)
    >>> split.X_train.shape, split.X_test.shape, int(split.y_test.sum())
    ((100, 64), (128, 64), 50)
    """
    one_of("order", order, ("random", "first", "last"))
    normal_rows = np.flatnonzero(bunch.target == 0)
    attack_rows = np.flatnonzero(bunch.target != 0)
    if len(normal_rows) < 2 or len(attack_rows) == 0:
        raise InputError(
            f"The table has {len(normal_rows)} normal and {len(attack_rows)} attack rows, "
            "but a split needs at least two normal rows and one attack."
        )
    n_train = whole_number(
        "train_normals",
        train_normals,
        1,
        len(normal_rows) - 1,
        why=", since one normal row must stay for the test",
    )
    left = len(normal_rows) - n_train
    n_test = left if test_normals is None else whole_number("test_normals", test_normals, 1, left)
    n_attacks = len(attack_rows) if attacks is None else whole_number("attacks", attacks, 1, len(attack_rows))

    # Two streams, so that the attacks do not depend on how the normal rows are ordered.
    shuffle, draw = generator(seed).spawn(2)
    if order == "random":
        shuffled = shuffle.permutation(normal_rows)
        train, test = shuffled[:n_train], shuffled[n_train : n_train + n_test]
    elif order == "first":
        train, test = normal_rows[:n_train], normal_rows[-n_test:]
    else:
        train, test = normal_rows[-n_train:], normal_rows[:n_test]
    if attacks is not None:
        attack_rows = np.sort(draw.choice(attack_rows, n_attacks, replace=False))

    test_rows = np.concatenate([test, attack_rows])
    return Bunch(
        name=f"{bunch.get('name', 'unnamed')}: {n_train:,} normal rows to train ({order}), "
        f"{n_test:,} normal rows and {n_attacks:,} attacks to test",
        X_train=bunch.data[train],
        X_test=bunch.data[test_rows],
        y_test=np.repeat([0, 1], [n_test, n_attacks]),
        feature_names=bunch.feature_names,
        train_rows=train,
        test_rows=test_rows,
    )
