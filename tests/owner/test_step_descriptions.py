"""What leaves the site is said in the first line of each step, all of it: an owner may read no further."""

from __future__ import annotations

import inspect
import re

import pytest

from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.owner.allowed_steps import install_steps

install_steps()
OURS = [name for name in installed_steps() if name.startswith("fedspan.")]


@pytest.mark.parametrize("name", OURS)
def test_the_first_line_says_what_leaves_and_the_rest_adds_nothing(name):
    first, *rest = inspect.getdoc(find_step(name).function).splitlines()
    assert "Leaves the site" in first
    assert not re.search(r"\bAlso\b|\b[Ll]eaves? the site\b|\bbesides\b|\bin addition\b", " ".join(rest))


def test_there_are_many_of_them():
    assert len(OURS) > 80
