"""How many rows sites say that they have, in one sum after another: it cannot change, whoever answers."""

from __future__ import annotations

from fedspan.errors import MessageError
from fedspan.federation import Total


class CountedRows:
    """The number of rows of the most sites that were in a sum.

    Each sum says how many rows its sites have together, and not which site has how many. A site that lies about it, in
    some sums only, is told by sums of the same sites, or of some of them.

    Examples
    --------
    >>> rows = CountedRows(10, ("a", "b"))
    >>> rows.compare(Total({"n": 14}, ("a", "b", "c"), {}))
    >>> rows.n, rows.sites
    (14, ('a', 'b', 'c'))
    """

    def __init__(self, n: int = 0, sites: tuple[str, ...] = ()) -> None:
        self.n, self.sites = n, sites

    def compare(self, total: Total) -> None:
        """Refuse a sum over other rows than those before."""
        n, now, known = total["n"], set(total.sites), set(self.sites)
        if not isinstance(n, int) or n < 0:
            raise MessageError(f"the sites' numbers of rows add up to {n!r}: some site sends a number that cannot be")
        if (now <= known and n > self.n) or (self.sites and now >= known and n < self.n):
            raise MessageError(
                f"{len(now)} sites say to have {n} rows together, and {len(known)} sites had {self.n} before: some "
                "site's number of rows has changed, or is not true; leave out the site that you do not trust"
            )
        if len(now) > len(known):
            self.n, self.sites = n, tuple(total.sites)
