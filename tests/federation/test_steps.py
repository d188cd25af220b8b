"""Steps: registered functions that a site runs by their ids."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.errors import (
    MessageError,
    UnknownStepError,
)
from fedspan.federation.site.steps import dotted_name

from .conftest import count, walk


@fs.step
def echo(site, **payload):
    return {key: value for key, value in payload.items() if value is not None}


def test_a_step_can_be_called_by_its_dotted_name(fed):
    assert fed.sum(f"{count.__module__}.count")["n"] == 49


def test_only_installed_steps_can_be_called(fed):
    def not_a_step(site):
        return {}

    for unknown in (not_a_step, "os.system", "builtins.eval"):
        with pytest.raises(UnknownStepError, match="is not an installed step"):
            fed.ask(unknown)
    assert fed.record.calls == []


def test_reserved_and_unfitting_payloads_are_refused_before_any_site_is_asked(fed):
    for key in ("step", "to", "site"):
        with pytest.raises(MessageError, match=f"{key!r}, which is reserved"):
            fed.ask(echo, **{key: 1})
    with pytest.raises(MessageError, match="does not fit"):
        fed.ask(walk, push=1.0)
    assert fed.record.calls == []


def test_a_function_is_named_after_its_module_whatever_that_is_called():
    def function():
        """Not of a script."""

    for module in ("Zoo", "zoo.animals", "_"):
        function.__module__ = module
        assert dotted_name(function).startswith(f"{module}.test_")
