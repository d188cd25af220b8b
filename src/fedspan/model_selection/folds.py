"""Folds of a federation: some rows of every site, which the site draws for itself, or whole sites.

A site deals its rows to blocks, the same ones for whatever is requested: a twentieth of its rows each, or 20 rows. The
folds of a draw are made of whole blocks. So sums over folds, of all draws and numbers of folds together, tell no more
than the sums over the blocks. With folds of single rows, ten draws gave each row as the solution of linear equations.
A site needs to remember nothing. Where the sums over blocks must not be seen, leave whole sites out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, transform
from fedspan.federation.site.parameters import Whole
from fedspan.federation.site.site import generator
from fedspan.landmarks.parts.noisy_pull import local_rows
from fedspan.sums.dealt_rows import FEWEST_BLOCKS, block_of_rows, n_blocks, rows_of_a_block, shown_target

#: The number of different draws, and the largest number of folds.
DRAWS, MOST_PARTS = 10, FEWEST_BLOCKS


class Split(NamedTuple):
    """One fold: the federation to train on, that of the rows held out, and the sites that were left out whole."""

    training: Federation
    held: Federation
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowFolds:
    """Folds of rows: every site holds back the same share of its rows in each.

    Parameters
    ----------
    n_folds : int, default=5
        At most 20.
    draw : int, default=0
        Which of ten draws. Take the mean over several for less noise.
    stratify : bool or "auto", default="auto"
        Whether each fold has the same share of every class of ``y``, up to rounding at each site. ``"auto"``: for
        classifiers.

    Examples
    --------
    >>> import fedspan as fs
    >>> fed = fs.federate(np.zeros((10, 2)), sites=np.arange(10) % 2)
    >>> [split.held.sites for split in RowFolds(2).splits(fed)]
    [('0', '1'), ('0', '1')]
    """

    n_folds: int = 5
    draw: int = 0
    stratify: bool | str = "auto"

    def __post_init__(self) -> None:
        whole_number("n_folds", self.n_folds, 2, MOST_PARTS)
        whole_number("draw", self.draw, 0, DRAWS - 1)
        if self.stratify != "auto":
            true_or_false("stratify", self.stratify)

    def splits(self, fed: Federation, *, classes: bool = False) -> Iterator[Split]:
        """Yield the folds. `classes`: whether the model is a classifier."""
        by_class = classes if self.stratify == "auto" else bool(self.stratify)
        rows = row_numbers(fed)
        for number in range(self.n_folds):
            settings: dict[str, Any] = {"folds": self.n_folds, "number": number, "draw": self.draw}
            settings["by_class"] = by_class
            held = {name: fold_size(name, n, self.n_folds, number, self.draw) for name, n in rows.items()}
            for what, some in (
                ("to train on", any(n > held[name] for name, n in rows.items())),
                ("", any(held.values())),
            ):
                if not some:
                    raise InputError(
                        f"fold {number + 1} of {self.n_folds} has no row {what or 'held out'}: the sites have "
                        f"{sum(rows.values())} rows in all, use fewer folds"
                    )
            training = fed.subset(name for name, n in rows.items() if n > held[name])
            tested = fed.subset(name for name in rows if held[name])
            yield Split(training.apply(fold, **settings, held=False), tested.apply(fold, **settings, held=True))


@dataclass(frozen=True)
class SiteFolds:
    """Folds of whole sites, to learn whether a model holds at a site that had no part in it.

    Parameters
    ----------
    n_folds : int, optional
        Groups of sites, drawn with `random_state`. Default: each site is left out in turn.
    random_state : int, default=0

    Examples
    --------
    >>> import fedspan as fs
    >>> fed = fs.federate(np.zeros((9, 2)), sites=np.arange(9) % 3)
    >>> [(split.training.sites, split.left_out) for split in SiteFolds().splits(fed)]
    [(('1', '2'), ('0',)), (('0', '2'), ('1',)), (('0', '1'), ('2',))]
    """

    n_folds: int | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        if self.n_folds is not None:
            whole_number("n_folds", self.n_folds, 2)
        whole_number("random_state", self.random_state, 0)

    def splits(self, fed: Federation, *, classes: bool = False) -> Iterator[Split]:
        """Yield the folds."""
        sites = fed.sites
        folds = len(sites) if self.n_folds is None else self.n_folds
        if not 2 <= folds <= len(sites):
            raise InputError(
                f"{len(sites)} sites can't be divided into {max(folds, 2)} folds: use fewer, or folds of rows (cv=5)"
            )
        order = np.arange(len(sites)) if self.n_folds is None else generator(self.random_state).permutation(len(sites))
        for part in np.array_split(order, folds):
            out = tuple(sorted(sites[k] for k in part))
            yield Split(fed.subset(name for name in sites if name not in out), fed.subset(out), out)


Folds = RowFolds | SiteFolds


def chosen_folds(cv: Any) -> Folds:
    """Return the folds that ``cv`` means: a number of folds, ``"sites"``, or folds."""
    if isinstance(cv, RowFolds | SiteFolds):
        return cv
    if isinstance(cv, str) and cv == "sites":
        return SiteFolds()
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        return RowFolds(int(cv))
    raise InputError(f"cv={cv!r} must be a number of folds, 'sites', RowFolds(...) or SiteFolds(...)")


@transform("model_selection.fold", view=True, selects=True, least=rows_of_a_block)
def fold(
    site: Site,
    folds: Annotated[int, Whole(2, MOST_PARTS)],
    number: Annotated[int, Whole(0, MOST_PARTS - 1)],
    draw: Annotated[int, Whole(0, DRAWS - 1)],
    by_class: bool,
    held: bool,
) -> Site:
    """Show the rows of fold `number`, or with ``held=False`` all others."""
    own = fold_of_rows(site, folds, draw, by_class) == number
    return site.only(np.flatnonzero(own if held else ~own))


def fold_of_rows(site: Site, folds: int, draw: int, by_class: bool) -> NDArray[np.intp]:
    """Return the number of each row's fold (n,)."""
    if by_class and shown_target(site) is None:
        raise InputError("the site has no y, and folds by class need one: federate(X, y) gives it")
    return _fold_of_blocks(site.name, len(site), folds, draw)[block_of_rows(site)]


def fold_size(name: str, n: int, folds: int, number: int, draw: int) -> int:
    """Return the number of rows of a fold, of `n` rows at the site of this name."""
    blocks = np.flatnonzero(_fold_of_blocks(name, n, folds, draw) == number)
    return len(blocks) * rows_of_a_block(n) + int(np.sum(blocks < n % max(n_blocks(n), 1)))


def _fold_of_blocks(name: str, n: int, folds: int, draw: int) -> NDArray[np.intp]:
    """Return the number of each block's fold: of every `folds` blocks in a row, one is in each fold."""
    rng, blocks = generator(draw, "fold", name, folds), n_blocks(n)
    rounds = [rng.permutation(folds) for _ in range(-(-blocks // folds))]
    return np.concatenate([np.zeros(0, dtype=np.intp), *rounds])[:blocks]


def row_numbers(fed: Federation) -> dict[str, int]:
    """Return the number of rows of each site that answers."""
    replies = fed.ask(local_rows)
    return {name: int(reply["n"]) for name, reply in replies.items()}
