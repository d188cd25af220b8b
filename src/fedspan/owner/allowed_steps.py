"""Which steps and lenses a site's owner allows: by name, by module, or by group."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from difflib import get_close_matches

from fedspan.engines.remote.messages import environment as about
from fedspan.errors import InputError, UnknownStepError
from fedspan.federation.site.steps import find_step, installed_steps

OWN = "fedspan.protocols"
#: Replies that hold single rows, or cells of them: one entry for each row, the first two rows, texts of cells.
SINGLE_ROWS = (
    "fedspan.tables.parts.category_union.local_names",
    "fedspan.clustering.parts.centre_labels.local_labels",
    "fedspan.landmarks.landmark_distances.local_distances",
    "fedspan.mixed_regression.parts.moment_products.local_pair_product",
    "fedspan.maps.by_centers.local_places",
    "fedspan.maps.by_sums.local_positions",
)
GROUPS = {
    "summaries": "all steps of fedspan but those whose replies hold, or are about, single rows or cells of them",
    "single rows": "steps of fedspan whose replies hold, or are about, single rows or cells of them",
}
#: The rounds of a secure sum. The step that is summed is the one that must be allowed.
SECURE_SUM = "fedspan.secure_sum.sum_site_steps"


def install_steps(modules: Sequence[str] = ()) -> None:
    """Import fedspan's own protocols, and further `modules` with steps, so that this process can run them.

    Of fedspan's own, what needs a package that is missing here is left out.
    """
    about.install_steps()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # the module is the owner's own: whatever goes wrong there
            raise InputError(f"the module {name!r} cannot be imported: {type(error).__name__}: {error}") from None


class AllowedSteps:
    """The steps that some names allow: dotted names of steps, modules with steps, and groups.

    Public steps of fedspan, which say nothing of rows but their number (names of columns, the state of the budget), are
    always allowed, and so are the rounds of a secure sum.

    Examples
    --------
    >>> install_steps()
    >>> allowed = AllowedSteps(["fedspan.sums.moments"])
    >>> "fedspan.sums.moments.local_sums" in allowed, "fedspan.landmarks.feddl.local_pull" in allowed
    (True, False)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        known = installed_steps()
        for name in names:
            if name not in GROUPS and not any(_covers(name, step) for step in known):
                near = get_close_matches(name, [*GROUPS, *known, *{step.rpartition(".")[0] for step in known}], 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"steps: {name!r} is neither a step that is installed here, nor a module with such steps, nor one "
                    f"of the groups {', '.join(map(repr, GROUPS))}{hint}"
                )

    def __contains__(self, step: str) -> bool:
        return is_public(step) or self.names_it(step)

    def names_it(self, step: str, few_rows: bool = False) -> bool:
        """Tell whether a step is named, or in a group that is; one about `few_rows` is in that of single rows."""
        if any(name not in GROUPS and _covers(name, step) for name in self.names):
            return True
        group = "single rows" if few_rows or step in SINGLE_ROWS else "summaries"
        return step.startswith(f"{OWN}.") and group in self.names

    def way_in(self, step: str) -> str:
        """Say which group a step of fedspan is in, for whoever is refused."""
        group = "single rows" if step in SINGLE_ROWS else "summaries"
        return f": it is in the group {group!r} (steps in site.toml)" if _covers(OWN, step) else ""

    def installed(self) -> tuple[str, ...]:
        """Return the installed steps that are allowed, without the rounds of a secure sum."""
        return tuple(step for step in installed_steps() if step in self and not _covers(SECURE_SUM, step))


def covers(names: Sequence[str], lens: str) -> bool:
    """Tell whether a lens is named, or is in a module that is."""
    return any(_covers(name, lens) for name in names)


def _covers(name: str, step: str) -> bool:
    return step == name or step.startswith(f"{name}.")


def is_public(step: str) -> bool:
    """Tell whether it is a step of fedspan that says nothing of rows. What a secure sum begins with runs another."""
    if not step.startswith("fedspan.") or step == f"{SECURE_SUM}.offer":
        return False
    try:
        return find_step(step).public
    except UnknownStepError:
        return False
