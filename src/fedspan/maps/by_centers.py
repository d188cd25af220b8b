"""A private map in one shot: only centres and their numbers of rows leave the sites, which place their rows themselves.

The coordinator draws rows around the centres, as spread as the rows are, and lays these out as in `private_map`. It
sends the centres' positions and the density of the map to the sites, and receives nothing more.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.parameters import ArrayOf, Count, Matrix, Positive, Vector
from fedspan.linalg.layout.grid_repulsion import Grid
from fedspan.linalg.layout.map_descent import Motion, moved, pulls
from fedspan.linalg.layout.map_graph import map_graph
from fedspan.maps.by_sums import Layout, Perplexity, PrivateMap, laid_out, posted_positions
from fedspan.maps.parts.map_centres import Codebooks, MapCentres, along_axes, map_centres
from fedspan.maps.parts.noisy_centres import NoisyBook, noisy_centres
from fedspan.privacy.mechanisms import GaussianCenters

#: The most rows drawn around centres.
MOST_DRAWS = 10_000
#: Steps of a row among centres and a density that do not move.
_STEPS, _RATE, _MOMENTUM, _FARTHEST = 60, 0.25, 0.5, 1.0
_BLOCK_ROWS = 4096


@transform("maps.place_by_centres")
def place_by_centres(
    X: NDArray[Any],
    mean: Vector,
    axes: Matrix,
    centres: Matrix,
    positions: Matrix,
    density: Annotated[NDArray[np.float64], ArrayOf("float", 2, least=0.0)],
    low: Vector,
    cell: Positive,
    neighbours: Count,
    perplexity: Perplexity,
) -> NDArray[np.float64]:
    """Return positions (n, 2) of rows: pulled by the nearest centres (L, r), pushed by the density of the map.

    They start at the weighted mean of these centres' positions (L, 2).
    """
    grid = Grid(low, cell, len(density))
    Q = grid.repulsion(density)
    rows = float(density.sum())
    Z = max(float(np.vdot(Q[0], density)) - rows, np.finfo(float).tiny)
    none: dict[str, Any] = {"own": 0, "own_perplexity": 1.0, "own_share": 0.0}
    found = np.empty((len(X), 2))
    for start in range(0, len(X), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        seen = along_axes(X[part], mean, axes)
        graph = map_graph(seen, centres, neighbours=neighbours, perplexity=perplexity, **none)
        Y = np.einsum("nk,nkq->nq", graph.pull.astype(np.float64), positions[graph.near])
        now = Motion(Y, np.zeros_like(Y), np.ones_like(Y))
        for _ in range(_STEPS):
            force = pulls(now.Y, graph, positions).force - (rows / Z) * grid.between(Q[1:], now.Y)
            now = moved(now, force, rate=_RATE, momentum=_MOMENTUM, farthest=_FARTHEST)
            now = Motion(np.clip(now.Y, grid.low, grid.high), now.move, now.gains)
        found[part] = now.Y
    return found


@step("maps.places", reveals="rows", ragged=["positions"])
def local_places(site: Site) -> dict[str, Any]:
    """Leaves the site: the positions (n_p, 2) of its rows on the map."""
    return {"positions": np.asarray(site.X, dtype=np.float32)}


def one_shot_map(
    fed: Federation,
    *,
    layout: Layout | None = None,
    books: Codebooks | NoisyBook | None = None,
    privacy: GaussianCenters | None = None,
    post_positions: bool = False,
    names: tuple[str, ...] | None = None,
) -> PrivateMap:
    """Make a map of all rows from their centres alone; parameters as in `private_map`.

    With `privacy` all sums have noise, `books` is a `NoisyBook`, and values that are not finite are not reported.
    """
    if post_positions:
        fed.need_single_replies("post_positions=True")
    layout = layout or Layout()
    if privacy is not None:
        books = books if isinstance(books, NoisyBook) else NoisyBook()
        found = noisy_centres(fed, privacy=privacy, book=books, post_positions=post_positions)
    else:
        books = books if isinstance(books, Codebooks) else Codebooks()
        found, _ = map_centres(fed, books=books, names=names)
    drawn = Site("drawn rows", _draws(found, fed.rng)).in_call(CallContext({}, number=0))
    C, histogram, grid = laid_out(lambda run, **payload: run(drawn, **payload), fed, found, layout, books.least_rows)
    density = histogram * (found.n / len(drawn))
    embedding = None
    if post_positions:
        placing = placing_parameters(found.mean, found.axes, found.centres, C, density, grid, layout)
        embedding = posted_positions(fed.apply(place_by_centres, **placing), local_places)
    return PrivateMap(found, C, density, grid.low, grid.cell, embedding)


def _draws(found: MapCentres, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return rows (m, r) drawn around the centres in proportion to their rows: one for each row, up to a limit."""
    m = min(found.n, MOST_DRAWS)
    which = rng.choice(len(found.centres), m, p=found.counts / found.counts.sum())
    return np.asarray(found.centres[which] + np.sqrt(found.within) * rng.standard_normal((m, len(found.within))))


def placing_parameters(
    mean: Matrix, axes: Matrix, centres: Matrix, positions: Matrix, density: Matrix, grid: Grid, layout: Layout
) -> dict[str, Any]:
    """Return the parameters of `place_by_centres` for a map."""
    map_ = {"mean": mean, "axes": axes, "centres": centres, "positions": positions, "density": density}
    return map_ | {"low": grid.low, "cell": grid.cell, "neighbours": layout.neighbours, "perplexity": layout.perplexity}
