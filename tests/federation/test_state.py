"""The state of a site: changed all at once, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.errors import (
    MessageError,
)
from fedspan.federation.site.state import State


def test_what_goes_into_state_is_copied_and_what_comes_out_may_be_changed():
    base = {"w": np.zeros(2)}
    state = State(base)
    given = np.ones(2)
    state["new"] = given
    given[0] = 5.0
    assert state["new"].tolist() == [1.0, 1.0]
    state["w"] += 1.0
    w = state["w"]
    w += 1.0
    assert state["w"].tolist() == [2.0, 2.0]
    assert base["w"].tolist() == [0.0, 0.0]
    changes = state.changes()
    assert sorted(changes.put) == ["new", "w"]
    assert changes.applied_to(base)["w"].tolist() == [2.0, 2.0]


def test_setdefault_gives_what_is_kept():
    state = State({})
    w = state.setdefault("w", np.zeros(1))
    w += 1
    assert state["w"].tolist() == [1.0]
    assert state.setdefault("w", np.zeros(1)) is w


def test_state_is_a_mapping():
    state = State({"a": 1, "b": 2})
    del state["a"]
    state["c"] = 3
    assert dict(state) == {"b": 2, "c": 3}
    assert len(state) == 2
    assert "a" not in state
    assert state.pop("b") == 2
    assert state.get("b", 9) == 9
    assert state.changes().deleted == ("a", "b")
    assert state.changes().applied_to({"a": 1, "b": 2}) == {"c": 3}
    state["a"] = 7
    assert state.changes().applied_to({"a": 1, "b": 2}) == {"a": 7, "c": 3}
    for missing in ("zz", "b"):
        with pytest.raises(KeyError):
            _ = state[missing]
        with pytest.raises(KeyError):
            del state[missing]


def test_reading_state_changes_nothing():
    base = {"w": np.array([np.nan, -0.0]), "n": 1}
    state = State(base)
    _ = state["w"], state["n"], state.get("x")
    assert not state.changes()


def test_state_holds_only_what_may_travel():
    with pytest.raises(MessageError, match="site state key 'model'"):
        State({})["model"] = object()


def test_a_change_in_the_middle_of_a_large_array_is_one():
    """Printed, such arrays are alike."""
    state = State({"w": np.zeros(5000), "n": 1})
    state["w"][2500] = 1.0
    state["n"] = 1.0
    changes = state.changes()
    assert changes.put["w"][2500] == 1.0
    assert type(changes.put["n"]) is float  # 1.0 is not 1
