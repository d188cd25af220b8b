"""A t-SNE map of rows that stay at their sites, with their positions: the coordinator sees sums alone.

Each site keeps the positions of its own rows. What rows of different sites have to do with each other goes through two
sums: attraction through the centres of a few federated k-means codebooks, each of which stands at the weighted mean of
the rows near it, and repulsion through a histogram of all positions:

    sums: mean and scatter -> principal axes;  codebooks of k-means -> centres (those of too few rows are dropped)
    site: ties of each row to the nearest centres, and to the nearest rows of the same site
    round: sum of the histograms, and of w y and w for each centre, w = p / (1 + d^2)
           coordinator: centres' positions, and by FFT the fields of sum q and sum q^2 (y - y_j)
           site: one step of t-SNE on its own positions

It is t-SNE on a graph of rows and massless centres: how rows are split decides only which rows are tied directly.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step
from fedspan.linalg.grid_repulsion import Grid, grid_around
from fedspan.linalg.map_descent import Motion, centre_sums, moved, pulls
from fedspan.linalg.map_graph import MapGraph, map_graph
from fedspan.protocols.map_centres import MapCentres, map_centres
from fedspan.protocols.posted_values import posted
from fedspan.protocols.whole_totals import whole
from fedspan.wire import Message

Matrix = NDArray[np.float64]

#: Half the width of the first grid, in deviations of the first axis; the deviation of the first positions.
_FIRST_WIDTH, _FIRST_DEVIATION = 4.0, 0.01
#: The step, in units of n / 4: at 12 times the attraction more would be unstable, after it less would be slow.
_EXAGGERATION = 12.0
_EARLY_RATE, _RATE = 1.0 / 12.0, 0.25
_EARLY_MOMENTUM, _MOMENTUM = 0.5, 0.8
#: No position moves farther in one round.
_FARTHEST = 5.0
#: The next grid is at least, and at most, so many times as wide as the positions extend.
_LEAST_ROOM, _MOST_ROOM = 1.06, 1.5
_GRAPH = tuple(field.name for field in fields(MapGraph))


@dataclass(frozen=True)
class PrivateMap:
    """What the coordinator ends with.

    Attributes
    ----------
    found : MapCentres
        Principal axes, centres (L, r) and their numbers of rows.
    positions : array (L, 2)
        Of the centres.
    density : array (size, size)
        Number of rows around each node of a grid, whose first node is at `low` (2,) and whose nodes are `cell` apart.
    embedding : dict of arrays (n_p, 2), or None
        By site, where positions were posted.
    """

    found: MapCentres
    positions: Matrix
    density: Matrix
    low: Matrix
    cell: float
    embedding: dict[str, NDArray[np.float32]] | None


@step
def local_ties(
    site: Site,
    centres: Matrix,
    neighbours: int,
    perplexity: float,
    own: int,
    own_perplexity: float,
    own_share: float,
    shrink: float,
) -> dict[str, Any]:
    """Leaves the site: its number of rows. It keeps their ties, and positions along the first two axes."""
    graph = map_graph(
        site.X,
        centres,
        neighbours=neighbours,
        perplexity=perplexity,
        own=own,
        own_perplexity=own_perplexity,
        own_share=own_share,
    )
    for name in _GRAPH:
        site.state[name] = getattr(graph, name)
    start = np.zeros((len(site), 2))
    columns = min(2, site.X.shape[1])
    start[:, :columns] = shrink * site.X[:, :columns]
    _keep(site, Motion(start, np.zeros_like(start), np.ones_like(start)))
    return {"n": len(site)}


@step
def local_view(site: Site, positions: Matrix, low: Matrix, cell: float, size: int) -> dict[str, Any]:
    """Leaves the site: the histogram of its positions, what they are to each centre, and two numbers.

    The sums (L, 3) of w y and w over its rows; how far its ties are stretched, and the kernel of positions with
    themselves.
    """
    return _seen(site, _motion(site), Grid(low, cell, size), positions)


@step
def local_move(
    site: Site,
    positions: Matrix,
    repulsion: Matrix,
    low: Matrix,
    cell: float,
    next_low: Matrix,
    next_cell: float,
    exaggeration: float,
    rate: float,
    momentum: float,
) -> dict[str, Any]:
    """Move each position one step, within the next grid. Leaves the site: the same as in `local_view`."""
    graph, now = _graph(site), _motion(site)
    size = repulsion.shape[1]
    force = exaggeration * pulls(now.Y, graph, positions).force - Grid(low, cell, size).between(repulsion, now.Y)
    after = moved(now, force, rate=rate, momentum=momentum, farthest=_FARTHEST)
    grid = Grid(next_low, next_cell, size)
    inside = np.clip(after.Y, grid.low, grid.high)
    after = Motion(inside, np.where(inside == after.Y, after.move, 0.0), after.gains)
    _keep(site, after)
    return _seen(site, _motion(site), grid, positions)


@step(ragged=["positions"])
def local_positions(site: Site) -> dict[str, Any]:
    """Leaves the site: the positions (n_p, 2) of its rows on the map."""
    return {"positions": site.state["Y"]}


def private_map(
    fed: Federation,
    *,
    rounds: int = 300,
    exaggeration_rounds: int = 75,
    grid: int = 64,
    codebooks: int = 6,
    rows_per_centre: float = 17.0,
    least_rows: int = 5,
    axes: int = 50,
    k_means_rounds: int = 15,
    neighbours: int = 30,
    perplexity: float = 8.0,
    own_neighbours: int = 15,
    own_perplexity: float = 10.0,
    own_share: float = 0.25,
    post_positions: bool = False,
    names: tuple[str, ...] | None = None,
) -> PrivateMap:
    """Make a map of all rows.

    Parameters
    ----------
    rounds, exaggeration_rounds : int, default=300, 75
        All rounds, and the first ones of them, with attraction 12 times as strong.
    grid : int, default=64
        Nodes of the histogram in each direction. Up per site and round: grid^2 + 3 L numbers; down 3 grid^2 + 2 L.
    codebooks, rows_per_centre, least_rows, axes, k_means_rounds
        Of the centres, see `map_centres`.
    neighbours, perplexity : int, float, default=30, 8.0
        Centres that a row is tied to, and how many of them count.
    own_neighbours, own_perplexity : int, float, default=15, 10.0
        The same of rows of its own site.
    own_share : float, default=0.25
        The part of the pull that comes from rows of the same site. More makes better maps of each site, and sites
        that lie apart.
    post_positions : bool, default=False
        Whether sites post the positions at the end.
    names : tuple of str, optional
        Of the columns, for what is said about values that are not finite.
    """
    whole_number("rounds", rounds, 1)
    whole_number("exaggeration_rounds", exaggeration_rounds, 0, rounds, why=", the number of rounds")
    whole_number("grid", grid, 8)
    whole_number("neighbours", neighbours, 1)
    whole_number("own_neighbours", own_neighbours, 1)
    real_number("perplexity", perplexity, least=1)
    real_number("own_perplexity", own_perplexity, least=1)
    real_number("own_share", own_share, least=0, most=1)
    if post_positions:
        fed.need_single_replies("post_positions=True")
    found, seen = map_centres(
        fed,
        codebooks=codebooks,
        rows_per_centre=rows_per_centre,
        least_rows=least_rows,
        axes=axes,
        rounds=k_means_rounds,
        names=names,
    )
    fed.log(phase="layout", centres=len(found.centres))
    shrink = _FIRST_DEVIATION / found.deviation
    n = whole(
        seen.sum(
            local_ties,
            centres=found.centres,
            neighbours=neighbours,
            perplexity=perplexity,
            own=own_neighbours,
            own_perplexity=own_perplexity,
            own_share=own_share,
            shrink=shrink,
        ),
        n=(),
    )["n"]
    C = np.zeros((len(found.centres), 2))
    columns = min(2, found.centres.shape[1])
    C[:, :columns] = shrink * found.centres[:, :columns]
    width = _FIRST_WIDTH * _FIRST_DEVIATION
    now = Grid(np.full(2, -width), 2 * width / (grid - 1), grid)
    total = _whole(seen.sum(local_view, positions=C, low=now.low, cell=now.cell, size=grid), grid, len(C))
    last = now
    for number in fed.rounds(rounds):
        C = _centre_positions(total["centres"], C)
        Q = now.repulsion(total["histogram"])
        Z = max(float(np.vdot(Q[0], total["histogram"])) - total["own"], np.finfo(float).tiny)
        fed.log(loss=float(total["stretch"] / n + np.log(Z)), width=now.cell * (grid - 1))
        early = number < exaggeration_rounds

        growth = now.cell / last.cell
        after = grid_around(total["histogram"], now, float(np.clip(1.1 * growth, _LEAST_ROOM, _MOST_ROOM)), least_rows)
        total = _whole(
            seen.sum(
                local_move,
                positions=C,
                repulsion=(n / Z) * Q[1:],
                low=now.low,
                cell=now.cell,
                next_low=after.low,
                next_cell=after.cell,
                exaggeration=_EXAGGERATION if early else 1.0,
                rate=_EARLY_RATE if early else _RATE,
                momentum=_EARLY_MOMENTUM if early else _MOMENTUM,
            ),
            grid,
            len(C),
        )
        last, now = now, after
    C = _centre_positions(total["centres"], C)
    embedding = None
    if post_positions:
        replies = posted(seen, local_positions, "positions", _checked_positions)
        embedding = {name: np.asarray(reply["positions"], dtype=np.float32) for name, reply in replies.items()}
    fed.stop(f"map of {n} rows by {len(C)} centres done")
    return PrivateMap(found, C, total["histogram"], now.low, now.cell, embedding)


def _centre_positions(sums: Matrix, before: Matrix) -> Matrix:
    """Return the weighted means of the rows near each centre; one that no row is near stays where it is."""
    w = sums[:, 2:]
    return np.where(w > 1e-12, sums[:, :2] / np.maximum(w, 1e-12), before)


def _whole(total: Any, grid: int, centres: int) -> Any:
    whole(total, histogram=(grid, grid), centres=(centres, 3), stretch=(), own=())
    if not total["histogram"].sum() > 0:
        raise InputError("the sites that answered have no rows: there is nothing to map")
    return total


def _checked_positions(reply: Message) -> Message:
    Y = reply.get("positions")
    if not isinstance(Y, np.ndarray) or Y.ndim != 2 or Y.shape[1] != 2 or Y.dtype.kind != "f":
        raise MessageError("positions must be numbers (rows, 2)")
    return reply


def _seen(site: Site, now: Motion, grid: Grid, positions: Matrix) -> dict[str, Any]:
    graph = _graph(site)
    found = pulls(now.Y, graph, positions)
    return {
        "histogram": grid.histogram(now.Y),
        "centres": centre_sums(now.Y, graph, found.weights, len(positions)),
        "stretch": found.stretch,
        "own": grid.own_kernel(now.Y),
    }


def _graph(site: Site) -> MapGraph:
    if "near" not in site.state:
        raise InputError("this site has missed the beginning of the map")
    return MapGraph(**{name: site.state[name] for name in _GRAPH})


def _motion(site: Site) -> Motion:
    return Motion(*(np.asarray(site.state[name], dtype=np.float64) for name in ("Y", "move", "gains")))


def _keep(site: Site, now: Motion) -> None:
    """Keep positions and moves in single precision, gains in half: each round's are in the journal, 20 bytes a row."""
    site.state["Y"], site.state["move"] = now.Y.astype(np.float32), now.move.astype(np.float32)
    site.state["gains"] = np.minimum(now.gains, 1e4).astype(np.float16)
