"""Which steps and transforms a site's owner allows: by id, by the beginning of ids, or by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from fedspan.errors import InputError
from fedspan.federation.site.steps import Step, installed_steps
from fedspan.federation.site.transforms import installed_transforms

#: What requests see at each level of a site's owner; the first one is the default.
LEVELS = {
    "aggregate": "requests see the number, the sums and the second moments of rows, and nothing else",
    "secure": "sums over rows leave the site within secure sums only",
    "private": "nothing leaves without noise that the site's ledger has charged",
    "trusted": "every installed step may run, also those whose replies hold rows",
}
#: The group of steps that a level admits, unless the owner names others.
STEPS_OF_LEVEL = {"aggregate": "moments", "secure": "summaries", "private": "fedspan", "trusted": "installed"}
TRANSFORMS_OF_LEVEL = {"aggregate": "affine", "secure": "fedspan", "private": "fedspan", "trusted": "installed"}
#: Groups of transforms: maps that are affine and the same for all rows, those of fedspan, all.
TRANSFORM_GROUPS = ("affine", "fedspan", "installed")
#: Groups of fedspan's own steps, by what their replies reveal.
GROUPS = {
    "moments": "steps of fedspan whose replies follow from the number, sums and second moments of rows",
    "summaries": "all steps of fedspan whose replies are sums over rows",
    "single rows": "steps of fedspan whose replies hold, or are about, single rows or cells",
    "fedspan": "all steps of fedspan",
    "installed": "all installed steps, also those of the modules that [site] names",
}
#: All steps, or all transforms, of fedspan.
OWN = "fedspan"
#: The beginning of the ids of a secure sum's stages.
SECURE_SUM = "secure_sum"


class AllowedSteps:
    """Steps that a list of names allows: ids such as ``"pca.gram"``, beginnings of ids such as ``"pca"``, and groups.

    Steps of fedspan that reveal nothing about rows (names of columns, the state of the budget) are always allowed. So
    are the stages of a secure sum. The step that is summed must be allowed.

    Examples
    --------
    >>> from fedspan.federation.site.discovery import install_steps
    >>> steps = install_steps()
    >>> allowed = AllowedSteps(["sums"])
    >>> "sums.centred_sums" in allowed, "landmarks.pull" in allowed
    (True, False)
    """

    def __init__(self, names: Sequence[str]) -> None:
        check_names("step", names, installed_steps(), GROUPS)
        self.names = tuple(names)

    def __contains__(self, id: str) -> bool:
        return is_public(id) or self.names_it(id)

    def names_it(self, id: str, few_rows: bool = False) -> bool:
        """Return whether a step is named, or in a group that is; one about `few_rows` is in that of single rows."""
        step = installed_steps().get(id)
        if step is not None and step.runs is not None:  # it could run any other step
            return False
        if "installed" in self.names or any(name not in GROUPS and _covers(name, id) for name in self.names):
            return True
        if step is None or not _is_own(step):
            return False
        groups = {_group(step, few_rows), OWN} | ({"moments"} if step.moments else set())
        return not groups.isdisjoint(self.names)

    def hint(self, id: str) -> str:
        """Name the group of a step of fedspan, for a user whose request is refused."""
        step = installed_steps().get(id)
        return f": it is in the group {_group(step)!r} (steps in site.toml)" if step and _is_own(step) else ""

    def installed(self) -> tuple[str, ...]:
        """Return the ids of the installed steps that are allowed, without the stages of a secure sum."""
        return tuple(id for id in installed_steps() if id in self and not _covers(SECURE_SUM, id))


def check_names(what: str, names: Sequence[str], ids: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse a name that is neither the id of an installed step or transform, nor a beginning of ids, nor a group."""
    ids, groups = list(ids), list(groups)
    for name in names:
        if name not in groups and not any(_covers(name, id) for id in ids):
            near = get_close_matches(name, [*groups, *ids, *{id.rpartition(".")[0] for id in ids}], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"{what}s: {name!r} is neither the id of an installed {what}, nor the beginning of such ids, nor "
                f"{' or '.join(map(repr, groups))}{hint}"
            )


def allows_transform(names: Sequence[str], id: str) -> bool:
    """Return whether a transform is named, by its id, the beginning of its id, or as one of fedspan's own.

    One that selects rows is not among those of fedspan: the difference of two selections may be a single row.
    """
    found = installed_transforms().get(id)
    if found is None:
        return False
    own = found.function.__module__.startswith("fedspan.") and not found.selects
    groups = {"installed"} | ({OWN} if own else set()) | ({"affine"} if found.affine else set())
    return not groups.isdisjoint(names) or any(_covers(name, id) for name in names)


def is_public(id: str) -> bool:
    """Return whether a step of fedspan reveals nothing about rows, and runs no other step that might."""
    step = installed_steps().get(id)
    return step is not None and _is_own(step) and step.public and step.runs is None


def admitted_at(step: Step) -> dict[str, str]:
    """Return, for each level that admits a step of fedspan unless the owner names others, on what condition.

    >>> from fedspan.federation.site.discovery import install_steps
    >>> admitted_at(install_steps()["pca.gram"])
    {'aggregate': 'on drawn rows', 'secure': 'in secure sums', 'trusted': 'yes'}
    """
    if step.public:
        return dict.fromkeys(LEVELS, "yes") | ({"secure": "yes, not by site"} if step.by_site else {})
    found = {"aggregate": "on drawn rows"} if step.moments else {}
    if step.reveals == "sums" and step.by_site is not True:
        found["secure"] = "in secure sums" if step.by_site is False else "in secure sums, not by site"
    if step.noisy:
        found["private"] = "with noise"
    return {**found, "trusted": "yes"}


def _covers(name: str, id: str) -> bool:
    return id == name or id.startswith(f"{name}.")


def _is_own(step: Step) -> bool:
    return step.function.__module__.startswith("fedspan.")


def _group(step: Step, few_rows: bool = False) -> str:
    return "single rows" if few_rows or step.reveals == "rows" else "summaries"
