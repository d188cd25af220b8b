"""Who is there, and who shares the next relay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Looks at the server after which no more sites are waited for that come at the same time.
LOOKS = 3


class Roster:
    """The sites that the server has heard of, and those among them that do not answer all the same.

    Attributes
    ----------
    heard : dict of float, by site
        When the server last heard of it, by its clock.
    """

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self._lost: dict[str, float] = {}  # a site whose process is gone must be heard of after this to be tried again

    def there(self) -> frozenset[str]:
        """Return the sites that are connected and have been heard of since their processes were lost, if they were."""
        return frozenset(site for site, when in self.heard.items() if when > self._lost.get(site, 0.0))

    def lose(self, sites: Iterable[str], answering: Mapping[str, object]) -> None:
        """Take note of sites whose processes are gone.

        One of those that answer was started anew, or lost its process; one that does not must be heard of again.
        """
        self._lost |= {site: 0.0 if site in answering else self.heard.get(site, 0.0) for site in sites}

    def why_not(self, site: str) -> str:
        """Say why there is no way to `site`."""
        if site not in self.heard:
            return f"{site} is not connected"
        return (
            f"{site} is there, and a way to it is about to be opened"
            if site in self.there()
            else f"{site} does not answer"
        )


class Gathering:
    """Decides which sites share a relay: those that come at the same time."""

    def __init__(self) -> None:
        self._settled: tuple[frozenset[str], int] = (frozenset(), 0)
        self._apart: set[str] = set()
        self._at_once = False

    def part(self, sites: Iterable[str]) -> None:
        """Let each of these have a relay of its own: one of them keeps theirs from starting, nobody knows which."""
        self._apart |= set(sites)

    def hurry(self) -> None:
        """Wait for no more sites: those that have no relay had one."""
        self._at_once = True

    def groups(self, homeless: frozenset[str], everybody: Iterable[str]) -> list[frozenset[str]]:
        """Return who gets a relay now, of the sites that have none; `everybody` are all that could come."""
        same, looks = self._settled
        looks = looks + 1 if homeless == same else 1
        self._settled = (homeless, looks)
        if not homeless or (looks < LOOKS and homeless != set(everybody) and not self._at_once):
            return []
        apart = homeless & self._apart
        self._at_once, self._apart = False, self._apart - apart
        return [sites for sites in (*(frozenset([site]) for site in sorted(apart)), homeless - apart) if sites]
