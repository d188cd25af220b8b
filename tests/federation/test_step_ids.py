"""Ids of steps and transforms never change unnoticed: journals and ``site.toml`` files name them.

`step_ids.txt` lists every id of fedspan with what its replies reveal. Add a line for a new step. A changed or removed
line breaks journals, owners' rules and saved runs: state it in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.transforms import installed_transforms

LIST = Path(__file__).with_name("step_ids.txt")


@pytest.fixture(scope="module")
def own():
    """The installed steps and transforms of fedspan, without those that tests define."""
    steps, transforms = install_steps(), installed_transforms()
    return [
        {id: found for id, found in kind.items() if found.function.__module__.startswith("fedspan.")}
        for kind in (steps, transforms)
    ]


def test_the_ids_are_those_of_the_list(own):
    steps, transforms = own
    lines = [f"step {id} {step.reveals}" for id, step in steps.items()]
    lines += [f"transform {id}" for id in transforms]
    listed = LIST.read_text(encoding="utf-8").splitlines()
    assert sorted(set(lines) - set(listed)) == [], f"add a line for each new step to {LIST}"
    assert sorted(set(listed) - set(lines)) == [], "an id that changes breaks journals and owners' rules"
    assert lines == listed, f"the lines of {LIST} are sorted, steps first"


def test_every_step_describes_what_leaves_the_site(own):
    steps, _ = own
    silent = [id for id, step in steps.items() if "eaves the site" not in (inspect.getdoc(step.function) or "")]
    assert silent == []
