"""Hostile parameters: a step or transform sees declared types only, or its site refuses the request.

Every parameter of every registered function gets arrays of all types and shapes, and numbers of all kinds. What is not
refused arrives as the equal plain number, or as an array of the declared kind and rank.
"""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fedspan.errors import FedspanError, MessageError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.steps import installed_steps
from fedspan.federation.site.transforms import installed_transforms

from .captured_calls import captured_calls
from .test_reveals import numbers_of, rare_digits, texts_of

DTYPES = ("?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "U1", "S1")
NUMBERS = (
    0,
    1,
    -1,
    2**63 + 1,
    -(2**70),
    10**400,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    1j,
    True,
)
OTHERS = (None, "", "x" * 100_000, b"x", [1.0], {"a": 1}, object)


def arrays():
    for dtype in DTYPES:
        for shape in ((), (0,), (1,), (1, 1), (2, 0), (1, 2, 1), (1,) * 9):
            yield np.ones(shape, dtype)
    yield np.array(2**63 + 1, np.uint64)
    yield np.array([2**63 + 1], np.uint64)
    yield np.array([np.nan])
    yield np.array([[np.inf, -1e308]])
    yield np.empty((2**35, 0))
    yield np.array([None], dtype=object)


HOSTILE = [*NUMBERS, *OTHERS, *arrays()]
HOSTILE += [
    kind(1) for kind in (np.int8, np.uint8, np.uint64, np.float16, np.float32, np.float64, np.bool_, np.complex128)
]


def functions():
    install_steps()
    every = {**installed_steps(), **{f"transform {id}": one for id, one in installed_transforms().items()}}
    own = {id: one for id, one in every.items() if one.function.__module__.startswith("fedspan.")}
    return {id: one for id, one in own.items() if one.declared.declared}


def honest_values(id, one):
    """Return the parameters of one honest call."""
    if id.startswith("transform "):
        calls = [captured.call for every in captured_calls().values() for captured in every]
        return next((t.parameters for call in calls for t in call.transforms if t.id == one.id), None)
    return next(
        (dict(captured.call.payload_of(captured.site.name)) for captured in captured_calls().get(one.id, ())), None
    )


@pytest.mark.parametrize("id", functions())
def test_whole_numbers_have_upper_bounds(id):
    """A number of passes over the rows has a small one: 10**12 local epochs would never end."""
    for name, check in functions()[id].declared.declared.items():
        most = 10_000 if name.endswith(("steps", "epochs", "iterations", "rounds", "degree")) else 10**15
        whole = any(takes(check, number) for number in (0, 1, 2, 10)) and not takes(check, 1.5)
        assert not (whole and takes(check, most + 1)), (
            f"{id} takes any whole number as {name!r}: declare it with a bound, such as Index, Count or Passes of "
            "fedspan.federation.site.parameters"
        )


@pytest.mark.parametrize("id", functions())
def test_checks_take_no_more_memory_than_the_values(id):
    """Checks run in the site's worker, before the process whose memory is limited."""
    for name, check in functions()[id].declared.declared.items():
        for ndim in (1, 2, 3):
            for shape in ((4000, *(2,) * (ndim - 1)), (*(2,) * (ndim - 1), 4000), (1 << 20, *(0,) * (ndim - 1))):
                for value in (np.ones(shape), np.ones(shape, dtype=np.int64)):
                    tracemalloc.start()
                    try:
                        takes(check, value)
                        used = tracemalloc.get_traced_memory()[1]
                    finally:
                        tracemalloc.stop()
                    assert used < 16 * value.nbytes + 2**25, name  # a number for each place of an axis without entries


def takes(check, value):
    try:
        check("it", value)
    except MessageError:
        return False
    return True


@pytest.mark.parametrize("id", functions())
def test_what_is_not_refused_is_the_equal_plain_value(id):
    one = functions()[id]
    honest = honest_values(id, one)
    accepted = 0
    for name, check in one.declared.declared.items():
        for value in HOSTILE:
            if honest is None:
                checked = lambda: check(name, value)  # noqa: E731, B023
            else:
                checked = lambda: one.validated({**honest, name: value})[name]  # noqa: E731, B023
            try:
                found = checked()
            except MessageError:
                continue
            accepted += 1
            assert_plain(found, value)
    assert accepted < len(one.declared.declared) * len(HOSTILE) / 2


def assert_plain(found, given):
    if isinstance(given, np.ndarray) and given.shape == () and type(found) is float:
        assert given.dtype == np.float64
        assert found == given.item()
    elif isinstance(given, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.ndim == given.ndim > 0
        assert found.dtype in ("?", "u1", "i8", "u8", "f4", "f8") or found.dtype.kind == "U"
        assert max(found.shape) <= 2**20 or found.size
        np.testing.assert_array_equal(found, given)
        assert (given.dtype.kind == "U") == (found.dtype.kind == "U")
    else:
        assert found is None or type(found) in (int, float, bool, str)
        assert type(given) in (int, float, bool, str, type(None))
        assert found == given
        assert isinstance(found, bool) == isinstance(given, bool)


def strangers(value):
    """Yield values of the declared type that do not fit the rows: other names, other columns, other sizes."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        yield from (np.array(["zz"]), value[:0], value[:1])
    elif isinstance(value, np.ndarray) and value.ndim:
        yield from (value[:0], np.zeros_like(value), value[:1])
        if value.dtype.kind == "i":
            yield value + 1
    elif type(value) is int:
        yield from (value + 1, 0, -1)


@pytest.mark.parametrize("id", [id for id in functions() if not id.startswith(("transform ", "secure_sum."))])
def test_errors_hold_no_cell(id):
    """A site that reported which of its values a request does not list would report all of them, one by one."""
    one = next((captured for captured in captured_calls().get(id, ()) if not captured.call.apart), None)
    if one is None:
        return
    cells, texts = {f"{cell:.6g}" for cell in numbers_of(one.site)}, texts_of(one.site) | labels_of(one.site)
    honest = dict(one.call.payload_of(one.site.name))
    for name, value in honest.items():
        for hostile in strangers(value):
            try:
                payload = one.call.step.validated({**honest, name: hostile})
                SiteHost(one.site).perform(replace(one.call, run="law", number=0), payload, -1)
            except FedspanError as error:
                words = str(error).removeprefix(f"step {id!r}").replace(one.site.name, "")
                numbers = re.findall(r"\d+\.\d{4,}(?:e-?\d+)?", words)
                assert not {f"{float(number):.6g}" for number in numbers} & cells, words
                assert not any(repr(text) in words for text in texts), words
            except Exception:
                continue


def sums_by_numbers():
    """Yield a call of each step of sums whose owner is not informed of how few rows one number sums up."""
    for id, one in functions().items():
        if not id.startswith("transform ") and one.reveals == "sums" and one.fewest is None:
            yield from captured_calls().get(id, ())[:1]


def test_no_whole_number_makes_sums_of_single_rows():
    """As the mean of each of ``n_blocks`` blocks of rows would be where there are as many blocks as rows."""
    for captured in sums_by_numbers():
        call, site = captured.call, captured.site
        honest, cells = dict(call.payload_of(site.name)), numbers_of(site)
        for name in [name for name, value in honest.items() if type(value) is int]:
            for hostile in (len(site), len(site) - 1, 2 * len(site)):
                try:
                    payload = call.step.validated({**honest, name: hostile})
                    reply = SiteHost(site).perform(replace(call, run="law", number=0), payload, -1).reply
                except Exception:
                    continue
                assert not any(cells & rare_digits(value) for value in reply.values()), (
                    f"{call.step.id} shows cells with {name}={hostile}: declare fewest=..., the rows behind one "
                    'number, or reveals="rows"'
                )


def labels_of(site):
    """Return targets that are text."""
    return set() if site.y is None or site.y.dtype.kind != "U" else set(site.y.tolist())
