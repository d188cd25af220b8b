"""Declared types, ranks and ranges of parameters: what is taken, what is refused."""

from __future__ import annotations

from typing import Annotated, TypedDict, Unpack

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import MessageError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.parameters import (
    ArrayOf,
    Count,
    Flags,
    Index,
    Indices,
    Labels,
    Matrix,
    OneOf,
    Positive,
    Real,
    Share,
    Text,
    Vector,
    Whole,
)
from fedspan.federation.site.steps import parameters_of
from fedspan.federation.site.transforms import installed_transforms


def validated(hint, value):
    def function(site, value): ...

    function.__annotations__["value"] = hint
    return parameters_of(function).validated({"value": value})["value"]


@pytest.mark.parametrize(
    ("hint", "value", "found"),
    [
        (Positive, 2, 2.0),
        (Share, 1.0, 1.0),
        (Count, 1, 1),
        (Index, 0, 0),
        (float, -3, -3.0),
        (bool, True, True),
        (str, "x", "x"),
        (int | None, None, None),
        (int | None, 3, 3),
        (int, -(2**53), -(2**53)),
        (Annotated[str, OneOf(("a", "b"))], "b", "b"),
    ],
)
def test_plain_values_become_their_declared_type(hint, value, found):
    result = validated(hint, value)
    assert result == found
    assert type(result) is type(found)


@pytest.mark.parametrize("hint", [Positive, Share, Count, Index, float, int, bool, str, int | None])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64, np.complex128, np.bool_, "U1"])
def test_no_array_is_taken_for_a_number_or_a_word(hint, dtype):
    for array in (np.ones((), dtype), np.ones(1, dtype), np.ones(0, dtype)):
        with pytest.raises(MessageError, match="value must be"):
            validated(hint, array)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Positive, 0.0),
        (Positive, float("nan")),
        (Positive, float("inf")),
        (Positive, True),
        (Positive, "1"),
        (Positive, 1 + 0j),
        (Positive, 2**60),
        (Positive, None),
        (Share, 1.0000001),
        (Share, -1e-300),
        (Count, 0),
        (Count, 1.0),
        (Count, True),
        (Index, -1),
        (int, -(2**53) - 1),
        (Annotated[int, Whole(1, 10)], 11),
        (bool, 1),
        (Annotated[str, Text(3)], "four"),
        (Annotated[str, OneOf(("a",))], "b"),
    ],
)
def test_values_of_another_type_or_beyond_the_range_are_refused(hint, value):
    with pytest.raises(MessageError, match="value must be"):
        validated(hint, value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.float16, np.float32, np.float64])
def test_real_arrays_keep_their_values(dtype):
    array = np.array([[1, 2], [3, 100]], dtype)
    found = validated(Matrix, array)
    np.testing.assert_array_equal(found, array.astype(np.float64))
    assert found.dtype in (np.float32, np.float64)


@pytest.mark.parametrize(
    ("hint", "array"),
    [
        (Matrix, np.ones(3)),
        (Matrix, np.ones((1, 1, 1))),
        (Matrix, np.ones((2, 2), complex)),
        (Matrix, np.ones((2, 2), bool)),
        (Matrix, np.array([["1"]])),
        (Matrix, np.array([[np.nan]])),
        (Matrix, np.array([[2**60 + 1]])),
        (Vector, np.array(1.0)),
        (Matrix, np.empty((0, 2**21))),
        (Indices, np.ones(2)),
        (Indices, np.array([2**63 + 1], np.uint64)),
        (Flags, np.ones(2, np.uint8)),
        (Labels, np.array([b"x"])),
        (Annotated[np.ndarray, ArrayOf("float", 1, least=0.0, most=1.0)], np.array([0.5, 1.5])),
        (Annotated[np.ndarray, ArrayOf("word", 1)], np.ones(1, np.int64)),
    ],
)
def test_arrays_of_another_kind_rank_or_range_are_refused(hint, array):
    with pytest.raises(MessageError, match=r"value (must|has)"):
        validated(hint, array)


def test_a_step_is_not_run_with_a_payload_that_it_did_not_declare():
    ran = []

    @fs.step
    def local_scaled(site, by: Annotated[float, Real(above=0.0)]):
        ran.append(site.name)
        return {"x": by * site.X.sum()}

    fed = fs.federate(np.ones((4, 1)), sites=[0, 0, 1, 1])
    assert fed.sum(local_scaled, by=2)["x"] == 8.0
    del ran[:]
    with pytest.raises(MessageError, match="by must be a finite number, above 0"):
        fed.sum(local_scaled, by=np.array(2, np.uint8))
    assert ran == []


def test_a_step_without_annotations_takes_what_it_is_given():
    @fs.step
    def local_any(site, thing):
        return {"x": np.asarray(thing)}

    fed = fs.federate(np.ones((4, 1)), sites=[0, 0, 1, 1])
    np.testing.assert_array_equal(fed.ask(local_any, thing=np.array(3))["0"]["x"], 3)
    assert not parameters_of(local_any).complete


class Pulled(TypedDict):
    by: Positive
    rows: int


def test_parameters_that_steps_share_are_checked_as_their_own():
    def local_pull(site, at: float, **pulled: Unpack[Pulled]): ...

    found = parameters_of(local_pull)
    assert found.complete
    assert found.validated({"at": 1, "by": 2, "rows": 3}) == {"at": 1.0, "by": 2.0, "rows": 3}
    for payload in ({"at": 1, "by": 2}, {"at": 1, "by": 2, "rows": 3, "more": 4}, {"by": 2, "rows": 3}):
        with pytest.raises(MessageError, match="does not fit"):
            found.validated(payload)
    with pytest.raises(MessageError, match="by must be"):
        found.validated({"at": 1, "by": -2, "rows": 3})


@pytest.mark.parametrize("id", install_steps())
def test_every_step_of_fedspan_declares_its_parameters(id):
    step = install_steps()[id]
    if step.function.__module__.startswith("fedspan."):
        assert step.declared.complete


@pytest.mark.parametrize("id", installed_transforms())
def test_every_transform_of_fedspan_declares_its_parameters(id):
    found = installed_transforms()[id]
    if found.function.__module__.startswith("fedspan."):
        assert found.declared.complete
