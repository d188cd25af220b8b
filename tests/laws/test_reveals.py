"""What steps reveal: a reply that is declared to be sums, or nothing, holds no cell and no entry per row.

The rows of the examples are recognisable: numbers with many digits, and texts of their own. All replies of all examples
are searched for them.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import installed_steps

from .captured_calls import captured_calls

#: Numbers with fewer digits occur by chance: counts, zeros, ones, halves.
FEWEST_DIGITS = 6


def own_steps():
    install_steps()
    return {id: step for id, step in installed_steps().items() if step.function.__module__.startswith("fedspan.")}


def test_every_step_declares_an_id_and_what_it_reveals():
    for id, step in own_steps().items():
        room, _, name = id.rpartition(".")
        assert room in step.function.__module__.split("."), (
            f"{id} is not the id of a step in {step.function.__module__}"
        )
        assert name
        assert "." not in room


@pytest.fixture(scope="module")
def replies():
    """All replies of all examples: by step, a list of (site, reply)."""
    return defaultdict(list, {id: [(one.site, one.reply) for one in calls] for id, calls in captured_calls().items()})


@pytest.mark.parametrize("id", [id for id, step in own_steps().items() if step.reveals != "rows"])
def test_sums_hold_no_cell_and_no_entry_per_row(id, replies):
    assert replies[id], f"no example runs the step {id!r}: give one in tests/laws/protocol_examples.py"
    for site, reply in replies[id]:
        cells, texts = numbers_of(site), texts_of(site)
        for key, value in reply.items():
            assert not cells & rare_digits(value), f"{key!r} holds a cell of the rows"
            assert not cells & numbers_in_text(value), f"{key!r} holds a cell of the rows as text"
            assert not any(text in part for part in strings_in(value) for text in texts), f"{key!r} holds a text cell"
    for key in replies[id][0][1]:
        assert not per_row(key, replies[id]), f"{key!r} has one entry per row"


def test_the_law_notices_cells_texts_and_entries_per_row():
    X = np.array([[0.123456789, 2.0], [1.0, 3.0]])
    site = fs.Site("a", X, task=np.array(["own-1", "own-2"]))
    bits = X.view(np.int64)
    for hidden in (np.array([7.0, 0.123456789]), -X, X.astype(np.float32), bits, int(bits[0, 0]), X.view(np.uint8)):
        assert numbers_of(site) & rare_digits(hidden)
    for hidden in (X.tobytes(), X.astype(np.float32).view(np.int16), X * 1j, complex(1.0, X[0, 0])):
        assert numbers_of(site) & rare_digits(hidden)
    with pytest.raises(AssertionError, match="half precision"):
        rare_digits(X.astype(np.float16))
    for text in (json.dumps(X.tolist()), X[0, 0].hex()):
        assert numbers_of(site) & numbers_in_text(text)
    assert any(text in part for part in strings_in('["own-2"]') for text in texts_of(site))
    other = fs.Site("b", np.zeros((3, 2)))
    for shape in (lambda n: (n,), lambda n: (4, n), lambda n: (2 * n,)):
        assert per_row("x", [(site, {"x": np.zeros(shape(2))}), (other, {"x": np.zeros(shape(3))}), (other, {})])
    assert not per_row("x", [(site, {"x": np.zeros(2)}), (other, {"x": np.zeros(2)})])
    sizes = [fs.Site(f"{n}", np.zeros((n, 1))) for n in (9, 17, 30)]
    for entries in (np.zeros, lambda n: "0" * n, lambda n: b"0" * n, lambda n: np.packbits(np.zeros(n, bool))):
        assert per_row("x", [(one, {"x": entries(len(one))}) for one in sizes])
    assert per_row("x", [(one, {"x": np.zeros(len(one) + 1)}) for one in sizes])
    assert not per_row("x", [(one, {"x": np.zeros(len(one) // 8 + 3)}) for one in sizes])


def test_every_step_states_its_id_and_what_it_reveals_where_it_is_defined():
    for path in Path(fs.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for found in getattr(node, "decorator_list", ()):
                called = found.func if isinstance(found, ast.Call) else found
                if isinstance(called, ast.Name) and called.id == "step":
                    assert isinstance(found, ast.Call), f"{path}:{node.lineno}"
                    assert isinstance(found.args[0], ast.Constant), f"{path}:{node.lineno}"
                    assert "reveals" in {word.arg for word in found.keywords}, f"{path}:{node.lineno}"


@fs.step("laws.keeps", reveals="nothing")
def keeps(site):
    site.state["x"] = float(site.X[0, 0])
    return {}


def test_a_step_that_reveals_nothing_is_shown_no_rows(tmp_path):
    """Whether it fails would reveal something. The examples run all of fedspan's own under this rule."""
    strict = fs.privacy.Ledger(tmp_path / "ledger", 1.0, 1e-5, strict=True)
    for ledger in (None, strict):
        fed = fs.LocalFederation([fs.Site("a", np.ones((3, 2)), ledger=ledger)])
        with pytest.raises(fs.errors.QuorumError, match="declares that it reveals nothing, and reads rows"):
            fed.ask(keeps)


def test_the_number_and_kind_of_columns_need_no_row():
    for calls in captured_calls().values():
        for one in calls[:3]:
            site = one.site
            for number, transform in enumerate(one.call.transforms):
                if transform.private:
                    break
                site = transform.applied_to(site, before=one.call.transform_digests[:number])
            else:
                if len(site) and not site.streamed:
                    none, some = site.no_rows(), next(site.batches(2)).X
                    assert (none.shape, none.dtype) == ((0, *some.shape[1:]), some.dtype)


def columns_of(frame):
    """Return the columns of a data frame, or all counts of a table of cells."""
    return [frame[name].to_numpy() for name in frame.columns] if hasattr(frame, "dtypes") else [frame.to_numpy()]


def numbers_of(site):
    columns = [site.y, site.task]
    frame = site.frame
    columns += [site.X] if frame is None else columns_of(frame)
    found = set().union(*(rare_digits(column) for column in columns if column is not None))
    return found | {np.float32(cell).item() for cell in found}


def texts_of(site):
    frame = site.frame
    columns = [site.task] if frame is None else columns_of(frame)
    found = {str(cell) for column in columns if column is not None for cell in column if isinstance(cell, str)}
    return {text for text in found if text.startswith("own-")}


def rare_digits(value):
    """Return the magnitudes of a value's numbers that have many digits, also of those whose bits it holds."""
    numbers = np.abs(np.concatenate([np.asarray(one, dtype=np.float64).ravel() for one in readings(value)] or [[0.0]]))
    numbers = numbers[np.isfinite(numbers) & (numbers > 1e-30)]  # the bits of whole numbers look like smaller ones
    return {x for x in numbers.tolist() if len(f"{x:.{FEWEST_DIGITS}g}".replace(".", "").strip("0")) >= FEWEST_DIGITS}


def readings(value):
    """Yield the numbers of a value, or all that its bytes can be read as."""
    array = np.asarray(value)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag])
    if array.dtype.kind == "f":
        assert array.dtype.itemsize >= 4, "half precision hides which cells a reply holds"
        yield array
    elif isinstance(value, bytes) or array.dtype.kind in "iu":
        raw = value if isinstance(value, bytes) else np.ascontiguousarray(array).tobytes()
        for kind in (np.float64, np.float32):
            size = np.dtype(kind).itemsize
            with np.errstate(invalid="ignore"):
                yield np.frombuffer(raw[: len(raw) // size * size], kind)


def numbers_in_text(value):
    """Return the magnitudes of numbers with many digits that texts hold."""
    found = [float(number) for text in strings_in(value) for number in re.findall(r"\d+\.\d{5,}(?:e-?\d+)?", text)]
    found += [float.fromhex(bits) for text in strings_in(value) for bits in re.findall(r"0x1\.[0-9a-f]+p[+-]\d+", text)]
    return rare_digits(np.array([*found, 0.0]))


def strings_in(value):
    if isinstance(value, str):
        return [value]
    array = np.asarray(value)
    return array.ravel().tolist() if array.dtype.kind == "U" else []


def per_row(key, replies):
    """Return whether a value has so many entries for each row, at sites of different sizes, along an axis or in all.

    A text or bytes have their signs as entries, bytes also each bit. Some further entries hide nothing.
    """
    found = [(len(site), shape_of(reply[key])) for site, reply in replies if key in reply]
    if len({rows for rows, _ in found}) < 2:
        return False
    axes = min(len(shape) for _, shape in found)
    sizes = sorted({(rows, int(np.prod(shape))) for rows, shape in found})
    per = {size // rows if rows and size % rows == 0 else 0 for rows, size in sizes}
    along = any(all(shape[axis] == rows for rows, shape in found) for axis in range(axes))
    if along or (len(per) == 1 and per != {0}):
        return True
    slopes = {(more - less) / (many - few) for (few, less), (many, more) in pairwise(sizes) if many > few}
    bits = all(size == -(-rows // 8) for rows, size in sizes) and holds_bits(replies[0][1].get(key))
    alone = len({rows for rows, _ in sizes}) == len(sizes)
    return alone and len(sizes) > 2 and (bits or (len(slopes) == 1 and slopes.pop() in (1.0, 2.0)))


def holds_bits(value):
    return isinstance(value, bytes) or np.asarray(value).dtype == np.uint8


def shape_of(value):
    """Return the shape of an array, or the length of a text or bytes."""
    return (len(value),) if isinstance(value, str | bytes) else np.shape(value)
