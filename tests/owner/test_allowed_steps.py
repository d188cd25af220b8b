"""Allowed steps: groups, ids, and what each step's description promises."""

from __future__ import annotations

import inspect
import re

import pytest

from fedspan.errors import InputError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import find_step, installed_steps, step
from fedspan.owner.allowed_steps import AllowedSteps, allows_transform, is_public

OWN = {id: found for id, found in install_steps().items() if found.function.__module__.startswith("fedspan.")}
SUMMED = {id for id in OWN if not id.startswith("secure_sum.")}


def test_groups_follow_what_steps_reveal():
    # Of these alone: an example in a docstring, once it has run, has installed a step, too.
    groups = (["summaries"], ["single rows"], ["fedspan"], [])
    summaries, rows, both, none = (set(AllowedSteps(names).installed()) & set(OWN) for names in groups)
    public = {id for id in SUMMED if OWN[id].reveals == "nothing"}
    assert summaries == {id for id in SUMMED if OWN[id].reveals in ("nothing", "sums")}
    assert rows == {id for id in SUMMED if OWN[id].reveals == "rows"} | public
    assert both == SUMMED
    assert none == public


def test_a_step_of_the_owner_is_in_no_group():
    @step("ourlab.count")
    def count(site):
        return {"n": len(site)}

    @step("ourlab.columns", reveals="nothing")
    def columns(site):
        return {"n": 1}

    assert "ourlab.count" not in AllowedSteps(["fedspan"])
    assert "ourlab.columns" not in AllowedSteps(["fedspan"])
    assert "ourlab.count" in AllowedSteps(["ourlab"])


def test_a_step_that_runs_another_one_is_never_allowed_by_itself():
    """A secure sum is judged by the step that it sums: the sum of a sum could hide any step."""
    assert "secure_sum.share" in AllowedSteps([])
    for names in (["summaries"], ["fedspan"], ["secure_sum"], ["secure_sum.offer"]):
        assert "secure_sum.offer" not in AllowedSteps(names)
    assert not is_public("secure_sum.offer")


def test_names_that_allow_nothing_are_refused():
    with pytest.raises(InputError, match=r"'pca.grams' is neither .* did you mean 'pca.gram'\?"):
        AllowedSteps(["pca.grams"])
    with pytest.raises(InputError, match=r"did you mean 'summaries'\?"):
        AllowedSteps(["summary"])


def test_transforms_are_allowed_by_id_beginning_or_all_of_fedspan():
    for names in (["sums.standardize"], ["sums"], ["fedspan"]):
        assert allows_transform(names, "sums.standardize")
    for names in ([], ["sums.stand"], ["tables"]):
        assert not allows_transform(names, "sums.standardize")
    assert not allows_transform(["fedspan"], "ourlab.zoom")


@pytest.mark.parametrize("id", OWN)
def test_the_first_line_of_a_description_states_all_that_leaves(id):
    first, *rest = inspect.getdoc(find_step(id).function).splitlines()
    assert "Leaves the site" in first
    assert not re.search(r"\bAlso\b|\b[Ll]eaves? the site\b|\bbesides\b|\bin addition\b", " ".join(rest))


def test_all_steps_are_described():
    assert len(OWN) > 80
    assert OWN.keys() <= installed_steps().keys()
