"""Failures and endings: text for people, kinds for code."""

from __future__ import annotations

import json

import pytest

from fedspan.federation.outcomes import Ending, EndingKind, Failure, FailureKind


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_is_read_as_it_was_written(kind):
    failure = Failure(kind, "why", ValueError("x"), {"epsilon": 1.5})
    read = Failure.of(json.loads(json.dumps(failure.values())))
    assert (str(read), read.kind, read.detail, read.facts, read.error) == (
        f"{kind}: why",
        kind,
        "why",
        {"epsilon": 1.5},
        None,
    )
    assert failure == read == f"{kind.value}: why"
    assert failure.offline == (kind is FailureKind.OFFLINE)


def test_a_failure_without_detail_is_its_kind():
    assert Failure(FailureKind.NO_REPLY) == "no reply"
    assert Failure(FailureKind.NO_REPLY).values() == {"kind": "no reply", "detail": ""}


def test_an_ending_is_its_words_or_its_kind():
    assert Ending(EndingKind.FINISHED) == "finished"
    assert Ending(EndingKind.STOPPED, "close enough") == "close enough"
    assert Ending(EndingKind.STOPPED, "close enough").kind is EndingKind.STOPPED
    assert not Ending()
