"""Writes docs/levels.md, what each level of a site's owner admits, from the declarations: ``python docs/levels.py``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import Step
from fedspan.federation.site.transforms import InstalledTransform, installed_transforms
from fedspan.owner.allowed_steps import LEVELS, TRANSFORMS_OF_LEVEL, admitted_at, allows_transform

PAGE = Path(__file__).parent / "levels.md"
LEAD = """# What each level admits

A site's owner chooses one of four [levels](site-owner.md#levels). This page is made of what steps and transforms
declare (`python docs/levels.py`): what runs at a site whose owner names no steps. An empty cell is a refusal.

- *on drawn rows*: the step sees rows with the moments of the site's own, and none of these.
- *in secure sums*: no single reply leaves. *Not by site*: refused where parameters make it report about each site.
- *with noise*: the step charges the site's ledger before it reads a row. Other steps see rows through
  `privacy.noisy_rows` alone.
- *few rows*: where an owner names the step or its group, parameters decide how few rows a number is about. Below
  `least_set` it is one of the group `single rows`. *Single*: outside of secure sums only.

"""


def steps_table(room: str, steps: list[Step]) -> str:
    """Return the table of one room's steps."""
    head = "".join(f" {level} |" for level in LEVELS)
    lines = [f"## {room}\n", f"| step | reveals |{head} few rows |", f"|---|---|{'---|' * (len(LEVELS) + 1)}"]
    for step in steps:
        cells = "".join(f" {admitted_at(step).get(level, '')} |" for level in LEVELS)
        few = "" if step.fewest is None else "counted" if step.fewest_in_sums else "counted, single"
        lines.append(f"| `{step.id}` | {step.reveals} |{cells} {few} |")
    return "\n".join(lines)


def transforms_table(found: dict[str, InstalledTransform]) -> str:
    """Return the table of transforms."""
    head = "".join(f" {level} |" for level in LEVELS)
    lines = ["## Transforms\n", f"| transform |{head} kind |", f"|---|{'---|' * (len(LEVELS) + 1)}"]
    for id, one in found.items():
        cells = "".join(f" {_transform_cell(one, level)} |" for level in LEVELS)
        kinds = {"affine": one.affine, "cell by cell": one.elementwise, "noise": one.mu2 is not None}
        kinds |= {"selects rows": one.selects, "by site": one.by_site}
        lines.append(f"| `{id}` |{cells} {', '.join(kind for kind, holds in kinds.items() if holds)} |")
    return "\n".join(lines)


def _transform_cell(one: InstalledTransform, level: str) -> str:
    allowed = allows_transform((TRANSFORMS_OF_LEVEL[level],), one.id) and not (level == "secure" and one.by_site)
    return "yes" if allowed else ""


def page() -> str:
    """Return the page."""
    steps = [step for step in install_steps().values() if step.function.__module__.startswith("fedspan.")]
    steps = [step for step in steps if not step.id.startswith("secure_sum.")]
    rooms = [steps_table(room, list(found)) for room, found in groupby(steps, lambda step: step.id.partition(".")[0])]
    own = {id: one for id, one in installed_transforms().items() if one.function.__module__.startswith("fedspan.")}
    return LEAD + "\n\n".join([*rooms, transforms_table(own)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
