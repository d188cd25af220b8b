"""The new rows of tables that only grow: at every site those behind the ones that earlier rounds have taken.

The coordinator keeps the place of each site. Places are in whole blocks of 20 rows. So the sums of two rounds never
differ by fewer rows, and no difference of them is a single row. Rows that do not yet fill a block wait for a later
round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import ArrayOf, Labels

Naturals = Annotated[NDArray[np.int64], ArrayOf("whole", 1, least=0)]

#: Rows of a block.
BLOCK = 20


@step("sums.row_blocks", reveals="nothing", weighted=True, counts=["blocks"])
def local_row_blocks(site: Site) -> dict[str, Any]:
    """Leaves the site: the number of whole blocks of 20 rows that it has."""
    return {"blocks": len(site) // BLOCK}


@transform("sums.new_rows", view=True, selects=True, by_site=True, least=lambda n: BLOCK)
def new_rows(site: Site, sites: Labels, starts: Naturals, stops: Naturals) -> Site:
    """Show the rows of a site from one block up to another: those that belong to its name."""
    places = [i for i, name in enumerate(sites) if str(name) == site.name]
    if len(places) != 1 or not len(sites) == len(starts) == len(stops):
        raise InputError(f"the blocks of site {site.name!r} are not stated once")
    start, stop = int(starts[places[0]]), int(stops[places[0]])
    if not start <= stop <= len(site) // BLOCK:
        raise InputError(
            f"site {site.name!r} has {len(site) // BLOCK} blocks of {BLOCK} rows, and can't show those from {start} to "
            f"{stop}: its table has become shorter"
        )
    return site.only(np.arange(BLOCK * start, BLOCK * stop))


def rows_since(marks: Mapping[str, int], fed: Federation) -> tuple[Federation | None, dict[str, int]]:
    """Return the federation of the sites that have new rows, and where each of them ends; ``None`` if none has.

    A site that does not answer now shows all that it has missed when it answers again.
    """
    with fed.begin("new rows") as run:
        found = {site: int(reply["blocks"]) for site, reply in run.ask(local_row_blocks).ok.items()}
    stops = {site: stop for site, stop in sorted(found.items()) if stop > marks.get(site, 0)}
    if not stops:
        return None, {}
    names = np.array(list(stops), dtype=str)
    starts = np.array([marks.get(site, 0) for site in stops], dtype=np.int64)
    ends = np.array(list(stops.values()), dtype=np.int64)
    return fed.subset(stops).apply(new_rows, sites=names, starts=starts, stops=ends), stops
