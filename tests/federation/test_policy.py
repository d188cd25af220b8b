"""Policies: the quorum, and values that are refused."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.errors import (
    PolicyError,
)


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"),
    [
        ("majority", 7, 4),
        ("majority", 8, 5),
        ("majority", 1, 1),
        ("all", 7, 7),
        (3, 7, 3),
        (9, 7, 7),
        (0.5, 7, 4),
        (1.0, 7, 7),
        (0.1, 30, 3),
        (0.01, 7, 1),
    ],
)
def test_quorum_counts(quorum, asked, needed):
    assert fs.Policy(quorum=quorum).needed(asked) == needed


@pytest.mark.parametrize(
    "bad",
    [
        {"deadline": float("inf")},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"deadline": None},
        {"run_deadline": 0.0},
        {"run_deadline": float("inf")},
        {"run_deadline": "a day"},
        {"quorum": 0},
        {"quorum": 1.5},
        {"quorum": 0.0},
        {"quorum": "most"},
        {"quorum": True},
        {"max_bytes": 0},
        {"max_bytes": 1.5},
        {"secure_sum": "yes"},
        {"groups": 1, "secure_sum": True},
        {"groups": 2.0, "secure_sum": True},
        {"groups": 3},
    ],
    ids=str,
)
def test_impossible_policies_are_refused(bad):
    with pytest.raises(PolicyError, match=next(iter(bad))):
        fs.Policy(**bad)
