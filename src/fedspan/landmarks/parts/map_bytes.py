"""The bytes of a run of FedDL, estimated before its rounds, beside those of the rows themselves."""

from __future__ import annotations

import warnings

from fedspan.checks import frames_inside

#: Rounds that an estimate assumes where they end by themselves.
EXPECTED_ROUNDS = 30
#: Bytes below which a run does not warn.
_WORTH_A_WARNING = 2**20
_MB = 1e6


def feddl_bytes(
    *,
    n: int,
    columns: int,
    sites: int,
    axes: int | None,
    n_landmarks: int,
    rounds: int,
    width: int,
    frequencies: int,
    posting: bool,
) -> int:
    """Return the bytes that a run of FedDL moves, up and down together.

    Parameters
    ----------
    n, columns, sites : int
        Rows of all sites, their columns, and the number of sites.
    axes : int or None
        Principal axes along which FedDL sees the rows; their scatter matrix is sent once.
    n_landmarks, rounds, frequencies : int
    width : int
        Bytes of a number in the rounds, 4 or 8.
    posting : bool
        Whether distances of all rows to all landmarks follow.

    Examples
    --------
    >>> paper = {"n": 3000, "columns": 784, "sites": 10, "n_landmarks": 500, "rounds": 50, "width": 8}
    >>> feddl_bytes(**paper, axes=None, frequencies=1024, posting=True) // 10**6
    3240
    """
    m = columns if axes is None else axes
    mean = 8 * columns  # travels with every call that sees centred columns
    view = mean + (0 if axes is None else 4 * axes * columns)
    moments = 6 * mean
    scatter = 0 if axes is None else mean + 4 * columns * (columns + 1) + view  # the view is sent once for all rounds
    waves = mean + frequencies * (4 * m + 16) if frequencies else 0
    pulls = rounds * ((mean if axes is None else 0) + 2 * width * n_landmarks * m)
    total = sites * (moments + scatter + waves + pulls)
    if posting:
        landmarks = n_landmarks * (8 * columns if axes is None else 4 * axes)
        total += 2 * sites * (view + landmarks) + 4 * n * n_landmarks
    return int(total)


def warn_of_traffic(estimate: int, n: int, columns: int) -> None:
    """Warn of a run that moves more bytes than the rows have in single precision."""
    rows = 4 * n * columns
    if estimate > max(rows, _WORTH_A_WARNING):
        warnings.warn(
            f"this run will move about {estimate / _MB:.3g} MB between coordinator and sites, and the rows themselves "
            f"have {rows / _MB:.3g} MB: fewer n_landmarks, rounds or axes (reduce) move less",
            stacklevel=frames_inside(),
        )
