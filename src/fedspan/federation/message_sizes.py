"""The bytes of one call's messages by site: one number where all have the same, as they mostly do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from itertools import repeat
from typing import Any


@dataclass(eq=False, repr=False, slots=True)
class SameSize(Mapping[str, int]):
    """The same size for each of some sites: a read-only dict that takes no memory per site.

    Examples
    --------
    >>> sizes = SameSize(("a", "b"), 48)
    >>> sizes["a"], sum(sizes.values()), sizes == {"a": 48, "b": 48}
    (48, 96, True)
    """

    sites: Sequence[str]
    size: int

    def __getitem__(self, site: str) -> int:
        if site not in self.sites:
            raise KeyError(site)
        return self.size

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    def __repr__(self) -> str:
        return repr(dict(self))

    def values(self) -> ValuesView[int]:
        """Return the size once for each site."""
        return _Repeated(self)

    def of(self, sites: Sequence[str]) -> bool:
        """Return whether the sizes are those of exactly these sites, in this order."""
        return self.sites is sites or tuple(self.sites) == tuple(sites)


class _Repeated(ValuesView[int]):
    """The values of `SameSize`, which are produced without reading the sites."""

    def __init__(self, sizes: SameSize) -> None:
        super().__init__(sizes)
        self._sizes = sizes

    def __iter__(self) -> Iterator[int]:
        return repeat(self._sizes.size, len(self._sizes))


def sizes_of(sites: Sequence[str], sizes: Iterable[int]) -> Mapping[str, int]:
    """Return sizes by site."""
    found = list(sizes)
    if found and all(size == found[0] for size in found):
        return SameSize(sites, found[0])
    return dict(zip(sites, found, strict=True))


def added(sizes: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sum of two messages' sizes for each site of one or both."""
    if isinstance(sizes, SameSize) and isinstance(more, SameSize) and sizes.of(tuple(more)):
        return SameSize(tuple(more), sizes.size + more.size)
    found = dict(sizes)
    for site, size in more.items():
        found[site] = found.get(site, 0) + size
    return found


def written(sizes: Mapping[str, int], sites: Sequence[str]) -> Any:
    """Return sizes as a file keeps them: one number where each of `sites` has the same."""
    if isinstance(sizes, SameSize) and sizes.of(sites):
        return sizes.size
    return dict(sizes)


def read(found: Any, sites: Sequence[str]) -> Mapping[str, int]:
    """Return what `written` wrote."""
    return SameSize(sites, found) if isinstance(found, int) else dict(found)
