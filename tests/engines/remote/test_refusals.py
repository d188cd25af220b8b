"""What a site reports with a failure, as the coordinator reads it."""

from __future__ import annotations

import pytest

from fedspan.engines.remote.messages.refusals import read_facts


def test_facts_are_few_names_with_numbers():
    assert read_facts('{"spent": 1.5, "left": 2, "why": "no", "flag": true}') == {"spent": 1.5, "left": 2.0}


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 999, "", "[1]", None, 3, '{"a": 1' + " " * 2000 + "}"])
def test_facts_of_another_form_are_left_out(text):
    assert read_facts(text) == {}
