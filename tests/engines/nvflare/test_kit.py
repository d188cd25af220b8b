"""``fed.toml``: what is refused, with a sentence."""

from __future__ import annotations

import pytest

from fedspan.engines.nvflare.setup.kit import parse_plan, read_kit, read_plan
from fedspan.errors import InputError

GOOD = {"name": "lab", "server": "fl.example.org:8002", "sites": ["north", "south"], "users": {"alice": "analyst"}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"port": 1}, "'port' is not a known key"),
        ({"transport": "smoke"}, "transport = 'smoke' must be one of"),
        ({"server": "fl.example.org"}, "must be an address such as"),
        ({"server": "fl.example.org:70000"}, "must be an address such as"),
        ({"sites": []}, "sites must be a list of names"),
        ({"sites": ["north", "North"]}, "given twice"),
        ({"sites": ["no/rth"]}, "must be letters, digits"),
        ({"sites": ["coordinator"]}, "is reserved"),
        ({"users": {"north": "analyst"}}, "given twice"),
        ({"users": {"alice": "admin"}}, "must be one of analyst, viewer, operator"),
        ({"users": ["alice"]}, "users must be a table of roles"),
        ({"schema": {"age": "float"}}, r"\[schema\] age = 'float' must be one of 'boolean', 'integer'"),
        ({"schema": {}}, "schema must be a table of kinds of columns"),
        ({"schema": ["age"]}, "schema must be a table of kinds of columns"),
        ({"secure_sum": 3}, "secure_sum must be a table of settings of secure sums: threshold, least"),
        ({"secure_sum": {"most": 3}}, "secure_sum must be a table of settings"),
        ({"secure_sum": {"threshold": 0.4}}, r"\[secure_sum\] threshold=0.4 of a secure sum must be above 0.5"),
        ({"secure_sum": {"least": 3}}, r"\[secure_sum\] least=3 is more than the 2 sites"),
    ],
)
def test_a_bad_plan_is_refused_with_a_sentence(change, why):
    with pytest.raises(InputError, match=why):
        parse_plan(GOOD | change)


@pytest.mark.parametrize("key", sorted(GOOD))
def test_no_key_may_be_missing(key):
    with pytest.raises(InputError, match=f"{key!r} is missing"):
        parse_plan({name: value for name, value in GOOD.items() if name != key})


def test_an_error_names_the_file(tmp_path):
    (tmp_path / "fed.toml").write_text('name = "lab"\n')
    with pytest.raises(InputError, match=r"fed\.toml: 'server' is missing"):
        read_plan(tmp_path / "fed.toml")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"sites": 3}'])
def test_a_damaged_kit_is_refused(tmp_path, text):
    (tmp_path / "fedspan.json").write_text(text)
    with pytest.raises(InputError, match="is damaged: make the kit again"):
        read_kit(tmp_path)
