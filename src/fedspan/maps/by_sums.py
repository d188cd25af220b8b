"""A t-SNE map of rows that stay at their sites, with their positions: the coordinator sees sums alone.

Each site keeps the positions of its own rows. Rows of different sites act on each other through two sums. Attraction
goes through the centres of a few federated k-means codebooks, each of which stands at the weighted mean of the rows
near it. Repulsion goes through a histogram of all positions::

    sums: mean and scatter -> principal axes;  codebooks of k-means -> centres (those of too few rows are dropped)
    site: ties of each row to the nearest centres, and to the nearest rows of the same site
    round: sum of the histograms, and of w y and w for each centre, w = p / (1 + d^2)
           coordinator: centres' positions, and by FFT the fields of sum q and sum q^2 (y - y_j)
           site: one step of t-SNE on its own positions

It is t-SNE on a graph of rows and massless centres. The split of the rows decides only which rows are tied directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Matrix, Positive, Real, Share, Stack, Vector, Whole
from fedspan.linalg.layout.grid_repulsion import Grid, grid_around
from fedspan.linalg.layout.map_descent import Motion, centre_sums, moved, pulls
from fedspan.linalg.layout.map_graph import MapGraph, map_graph
from fedspan.maps.parts.map_centres import Codebooks, MapCentres, map_centres
from fedspan.sums.plausible_totals import whole
from fedspan.sums.posted_values import posted
from fedspan.wire import Message

#: Half the width of the first grid, in deviations of the first axis; the deviation of the first positions.
_FIRST_WIDTH, _FIRST_DEVIATION = 4.0, 0.01
#: The first rounds, with 12 times the attraction, and the others. The rate is in units of n / 4: a larger one would be
#: unstable at first, a smaller one slow later.
_EARLY = {"exaggeration": 12.0, "rate": 1.0 / 12.0, "momentum": 0.5}
_LATER = {"exaggeration": 1.0, "rate": 0.25, "momentum": 0.8}
_TRIES = 3
#: No position moves farther in one round.
_FARTHEST = 5.0
#: The least and greatest width of the next grid, in extents of the positions.
_LEAST_ROOM, _MOST_ROOM = 1.06, 1.5
#: Exaggeration ends where it has made the map smaller than this part of its first width.
_SMALLEST = 0.05
#: The fewest and most nodes of the histogram in each direction.
_GRID_SIZES = (8, 4096)
_GRAPH = tuple(field.name for field in fields(MapGraph))
Perplexity = Annotated[float, Real(least=1.0)]


@dataclass(frozen=True)
class PrivateMap:
    """A map as the coordinator knows it.

    Attributes
    ----------
    found : MapCentres
        Principal axes, centres (L, r) and their numbers of rows.
    positions : array (L, 2)
        Of the centres.
    density : array (size, size)
        Number of rows around each node of a grid, whose first node is at `low` (2,) and whose nodes are `cell` apart.
    embedding : dict of arrays (n_p, 2), or None
        By site, if positions were posted.
    """

    found: MapCentres
    positions: Matrix
    density: Matrix
    low: Matrix
    cell: float
    embedding: dict[str, NDArray[np.float32]] | None


@step("maps.ties", reveals="sums")
def local_ties(
    site: Site,
    centres: Matrix,
    neighbours: Count,
    perplexity: Perplexity,
    own: Count,
    own_perplexity: Perplexity,
    own_share: Share,
    shrink: Positive,
) -> dict[str, Any]:
    """Leaves the site: its number of rows. It keeps their ties, and positions along the first two axes."""
    mine: dict[str, Any] = {"own": own, "own_perplexity": own_perplexity, "own_share": own_share}
    graph = map_graph(site.X, centres, neighbours=neighbours, perplexity=perplexity, **mine)
    for name in _GRAPH:
        site.state[name] = getattr(graph, name)
    start = _first_positions(site.X, shrink)
    _keep(site, Motion(start, np.zeros_like(start), np.ones_like(start)))
    return {"n": len(site)}


@step("maps.view", reveals="sums")
def local_view(
    site: Site, positions: Matrix, low: Vector, cell: Positive, size: Annotated[int, Whole(*_GRID_SIZES)]
) -> dict[str, Any]:
    """Leaves the site: the histogram of its positions, for each centre the sums of w y and w (L, 3), a kernel sum.

    The sums are over its rows; the last is that of the kernels of positions with themselves.
    """
    return _seen(site, Grid(low, cell, size), positions)


@step("maps.move", reveals="sums")
def local_move(
    site: Site,
    positions: Matrix,
    repulsion: Stack,
    low: Vector,
    cell: Positive,
    next_low: Vector,
    next_cell: Positive,
    exaggeration: Annotated[float, Real(least=1.0, most=12.0)],
    rate: Share,
    momentum: Share,
) -> dict[str, Any]:
    """Leaves the site: the same as in `local_view`, after one step of each position, and how its ties were stretched.

    Positions stay within the next grid.
    """
    now, size = _motion(site), repulsion.shape[1]
    attraction = pulls(now.Y, _graph(site), positions)
    force = exaggeration * attraction.force - Grid(low, cell, size).between(repulsion, now.Y)
    after = moved(now, force, rate=rate, momentum=momentum, farthest=_FARTHEST)
    grid = Grid(next_low, next_cell, size)
    inside = np.clip(after.Y, grid.low, grid.high)
    _keep(site, Motion(inside, np.where(inside == after.Y, after.move, 0.0), after.gains))
    return _seen(site, grid, positions) | {"stretch": attraction.stretch}


@step("maps.positions", reveals="rows", ragged=["positions"])
def local_positions(site: Site) -> dict[str, Any]:
    """Leaves the site: the positions (n_p, 2) of its rows on the map."""
    return {"positions": site.state["Y"]}


@dataclass(frozen=True)
class Layout:
    """Settings of the layout of a map.

    Attributes
    ----------
    rounds, exaggeration_rounds : int, default=300, a quarter of them
        All rounds, and the first ones of them, with attraction 12 times as strong.
    grid : int, default=64
        Nodes of the histogram in each direction. Up per site and round: grid^2 + 3 L numbers; down 2 grid^2 + 2 L.
    neighbours, perplexity : int, float, default=30, 10.0
        Centres that a row is tied to, and how many of them count.
    own_neighbours, own_perplexity : int, float, default=15, 10.0
        The same for rows of its own site.
    own_share : float, default=0.25
        The part of the pull that comes from rows of the same site. A larger part makes better maps of each site, and
        moves sites apart.
    """

    rounds: int = 300
    exaggeration_rounds: int | None = None
    grid: int = 64
    neighbours: int = 30
    perplexity: float = 10.0
    own_neighbours: int = 15
    own_perplexity: float = 10.0
    own_share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("rounds", "neighbours", "own_neighbours"):
            whole_number(name, getattr(self, name), 1)
        whole_number("grid", self.grid, *_GRID_SIZES)
        whole_number("exaggeration_rounds", self.early, 0, self.rounds, why=", the number of rounds")
        real_number("perplexity", self.perplexity, least=1)
        real_number("own_perplexity", self.own_perplexity, least=1)
        real_number("own_share", self.own_share, least=0, most=1)

    @property
    def early(self) -> int:
        """The number of rounds with more attraction."""
        return self.rounds // 4 if self.exaggeration_rounds is None else self.exaggeration_rounds


def private_map(
    fed: Federation,
    *,
    layout: Layout | None = None,
    books: Codebooks | None = None,
    post_positions: bool = False,
    names: tuple[str, ...] | None = None,
) -> PrivateMap:
    """Make a map of all rows.

    Parameters
    ----------
    layout : Layout, optional
    books : Codebooks, optional
        Of the centres.
    post_positions : bool, default=False
        Whether sites post the positions at the end: that needs single replies.
    names : tuple of str, optional
        Names of the columns, for errors about values that are not finite.
    """
    if post_positions:
        fed.need_single_replies("post_positions=True")
    books = books or Codebooks()
    found, seen = map_centres(fed, books=books, names=names)
    kept = seen.by_state()  # rounds need positions and ties alone, which sites keep

    def summed(run: Any, **payload: Any) -> Any:
        return (seen if run is local_ties else kept).sum(run, **payload)

    C, histogram, grid = laid_out(summed, fed, found, layout or Layout(), books.least_rows)
    embedding = posted_positions(seen, local_positions) if post_positions else None
    return PrivateMap(found, C, histogram, grid.low, grid.cell, embedding)


def laid_out(
    summed: Callable[..., Any], fed: Federation, found: MapCentres, layout: Layout, few: int
) -> tuple[Matrix, Matrix, Grid]:
    """Return the positions of the centres, the histogram of all rows, and its grid.

    `summed(step, **payload)` is the sum of a step's replies over all that have rows. The outermost `few` rows on each
    side do not widen the next grid, beyond which no row goes.
    """
    fed.log(phase="layout", centres=len(found.centres))
    shrink = _FIRST_DEVIATION / found.deviation
    ties: dict[str, Any] = {"centres": found.centres, "shrink": shrink, "own": layout.own_neighbours}
    ties |= {name: getattr(layout, name) for name in ("neighbours", "perplexity", "own_perplexity", "own_share")}
    n, size = 1, layout.grid
    for _ in range(_TRIES):  # a site that misses this has no place on the map: the request is repeated
        total = whole(summed(local_ties, **ties), n=())
        n = max(n, total["n"])
        if not getattr(total, "failed", None):
            break
    C = _first_positions(found.centres, shrink)
    width = _FIRST_WIDTH * _FIRST_DEVIATION
    last = now = Grid(np.full(2, -width), 2 * width / (size - 1), size)
    first, early = now.cell, True
    total = _whole(summed(local_view, positions=C, low=now.low, cell=now.cell, size=size), size, len(C))
    for number in fed.rounds(layout.rounds):
        C = _centre_positions(total["centres"], C)
        Q = now.repulsion(total["histogram"])
        Z = max(float(np.vdot(Q[0], total["histogram"])) - total["own"], np.finfo(float).tiny)
        # A map of few centres, all of which are tied to each other, would shrink to a point that no repulsion opens.
        early = early and number < layout.early and now.cell > _SMALLEST * first
        room = float(np.clip(1.1 * now.cell / last.cell, _LEAST_ROOM, _MOST_ROOM))
        after = grid_around(total["histogram"], now, room, few)
        grids = {"low": now.low, "cell": now.cell, "next_low": after.low, "next_cell": after.cell}
        moves = summed(local_move, positions=C, repulsion=(n / Z) * Q[1:], **grids, **(_EARLY if early else _LATER))
        total = _whole(moves, size, len(C), stretch=())
        fed.log(loss=float(total["stretch"] / n + np.log(Z)), width=now.cell * (size - 1))
        last, now = now, after
    fed.stop(f"map of {found.n} rows by {len(C)} centres done")
    return _centre_positions(total["centres"], C), total["histogram"], now


def posted_positions(seen: Federation, run: Callable[..., Any]) -> dict[str, NDArray[np.float32]]:
    """Return the positions of the rows of each site that posts them, by the step `run`."""

    def check(reply: Message) -> Message:
        Y = reply.get("positions")
        if not isinstance(Y, np.ndarray) or Y.ndim != 2 or Y.shape[1] != 2 or Y.dtype.kind != "f":
            raise MessageError("positions must be numbers (rows, 2)")
        return reply

    replies = posted(seen, run, "positions", check)
    return {name: np.asarray(reply["positions"], dtype=np.float32) for name, reply in replies.items()}


def _first_positions(X: NDArray[Any], shrink: float) -> Matrix:
    """Return the first two coordinates, made small."""
    start = np.zeros((len(X), 2))
    columns = min(2, X.shape[1])
    start[:, :columns] = shrink * X[:, :columns]
    return start


def _centre_positions(sums: Matrix, before: Matrix) -> Matrix:
    """Return the weighted means of the rows near each centre; one without near rows stays where it is."""
    w = sums[:, 2:]
    return np.where(w > 1e-12, sums[:, :2] / np.maximum(w, 1e-12), before)


def _whole(total: Any, grid: int, centres: int, **more: tuple[int, ...]) -> Any:
    whole(total, histogram=(grid, grid), centres=(centres, 3), own=(), **more)
    if not total["histogram"].sum() > 0:
        raise InputError("the sites that answered have no rows: there is nothing to map")
    return total


def _seen(site: Site, grid: Grid, positions: Matrix) -> dict[str, Any]:
    Y = _motion(site).Y
    centres = centre_sums(Y, _graph(site), positions)
    return {"histogram": grid.histogram(Y), "centres": centres, "own": grid.own_kernel(Y)}


def _graph(site: Site) -> MapGraph:
    return MapGraph(**{name: site.state[name] for name in _GRAPH})


def _motion(site: Site) -> Motion:
    if "Y" not in site.state:
        raise InputError("this site has missed the beginning of the map, and has no positions")
    return Motion(*(np.asarray(site.state[name], dtype=np.float64) for name in ("Y", "move", "gains")))


def _keep(site: Site, now: Motion) -> None:
    """Keep positions and moves in single precision, gains in half: each round's are in the journal, 20 bytes a row."""
    site.state["Y"], site.state["move"] = now.Y.astype(np.float32), now.move.astype(np.float32)
    site.state["gains"] = np.minimum(now.gains, 1e4).astype(np.float16)
