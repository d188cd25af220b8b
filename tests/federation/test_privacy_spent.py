"""What a run has spent of the sites' privacy: added up, and read again."""

from __future__ import annotations

import json
import math

from fedspan.federation.privacy_spent import ROW_ADDED, UNIT, PrivacySpent
from fedspan.federation.record import strict_json

ONE = PrivacySpent("one", {"b": 1.0}, 1e-5, {"b": 1.5}, ("sums",), ("means",), ("b",))
OTHER = PrivacySpent("other", {"a": 3.0, "b": 2.0}, 1e-6, {"a": 3.25, "b": 2.25}, ("sums", "rows"), refused=("c", "a"))


def test_two_together_by_hand():
    both = ONE + OTHER
    assert both == PrivacySpent(
        "one and other",
        {"a": 3.0, "b": 3.0},
        1e-5 + 1e-6,
        {"a": 3.25, "b": 3.75},
        ("sums", "rows"),
        ("means",),
        ("b",),
        True,
        UNIT,
        ("a", "c"),
    )
    assert list(both.epsilon) == ["a", "b"]
    assert both.worst == 3.0
    assert PrivacySpent("none", {}, 0.0, {}, ()).worst == 0.0


def test_figures_of_an_accountant_for_one_alone_are_dropped():
    without = PrivacySpent("x", {"b": 1.0}, 0.0, {}, ("sums",), guaranteed=False, unit=ROW_ADDED)
    for both in (ONE + without, without + ONE):
        assert both.accountant == {}
        assert not both.guaranteed
        assert sorted(both.unit.split("; and ")) == sorted([UNIT.split("; and ")[0], ROW_ADDED])


def test_it_is_read_as_it_was_written_with_infinities():
    endless = PrivacySpent("x", {"a": math.inf, "b": 2.0}, 1e-5, {"a": math.inf, "b": 2.5}, ("sums",), refused=("b",))
    written = json.loads(json.dumps(strict_json(endless.values()), allow_nan=False))
    assert PrivacySpent.of(written) == endless
