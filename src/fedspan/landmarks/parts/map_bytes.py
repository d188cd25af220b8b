"""The bytes of a run of FedDL, estimated before its rounds, beside those of the rows themselves."""

from __future__ import annotations

import warnings

from fedspan.checks import frames_inside
from fedspan.landmarks.parts.feddl_settings import FedDLSettings

#: Rounds that an estimate assumes where they end by themselves.
_EXPECTED_ROUNDS = 30
#: Bytes below which a run does not warn.
_WORTH_A_WARNING = 2**20
_MB = 1e6


def feddl_bytes(
    *,
    n: int,
    columns: int,
    sites: int,
    axes: int | None,
    learning: int = 0,
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
        Principal axes along which FedDL sees the rows.
    learning : int, default=0
        Bytes of each site by which these axes are learned.
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
    once = 0 if axes is None else learning + view  # the view is sent once for all rounds
    waves = mean + frequencies * (4 * m + 16) if frequencies else 0
    pulls = rounds * ((mean if axes is None else 0) + 2 * width * n_landmarks * m)
    total = sites * (moments + once + waves + pulls)
    if posting:
        landmarks = n_landmarks * (8 * columns if axes is None else 4 * axes)
        total += 2 * sites * (view + landmarks) + 4 * n * n_landmarks
    return int(total)


def estimated_bytes(
    chosen: FedDLSettings, n: int, columns: int, sites: int, learning: int, posting: bool, axes: int | None
) -> int:
    """Return about how many bytes a run with these settings moves, if FedDL sees rows along this number of axes."""
    m = columns if axes is None else axes
    n_landmarks = chosen.landmarks_for(m)
    single = chosen.precision_for(n * n_landmarks * m, reduced=axes is not None) == "single"
    return feddl_bytes(
        n=n,
        columns=columns,
        sites=sites,
        axes=axes,
        learning=learning,
        n_landmarks=n_landmarks,
        rounds=_EXPECTED_ROUNDS if chosen.rounds == "auto" else chosen.most_rounds,
        width=4 if single else 8,
        frequencies=chosen.n_frequencies or 0,
        posting=posting,
    )


def warn_of_traffic(estimate: int, n: int, columns: int) -> bool:
    """Warn of a run that moves more bytes than the rows have in single precision; return whether it does."""
    rows = 4 * n * columns
    much = estimate > max(rows, _WORTH_A_WARNING)
    if much:
        warnings.warn(
            f"this run will move about {estimate / _MB:.3g} MB between coordinator and sites, and the rows themselves "
            f"have {rows / _MB:.3g} MB: fewer n_landmarks, rounds or axes (reduce) move less",
            stacklevel=frames_inside(),
        )
    return much
