"""What steps reveal: a reply that is declared to be sums, or nothing, holds no cell and no entry per row.

The rows of the examples are recognisable: numbers with many digits, and texts of their own. All replies of all examples
are searched for them.
"""

from __future__ import annotations

from collections import defaultdict

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
            assert not any(text in part for part in strings_in(value) for text in texts), f"{key!r} holds a text cell"
    for key in replies[id][0][1]:
        assert not per_row(key, replies[id]), f"{key!r} has one entry per row"


def test_the_law_notices_a_cell_a_text_and_an_entry_per_row():
    site = fs.Site("a", np.array([[0.123456789, 2.0], [1.0, 3.0]]), task=np.array(["own-1", "own-2"]))
    assert numbers_of(site) & rare_digits(np.array([7.0, 0.123456789]))
    assert any(text in part for part in strings_in('["own-2"]') for text in texts_of(site))
    other = fs.Site("b", np.zeros((3, 2)))
    assert per_row("x", [(site, {"x": np.zeros(2)}), (other, {"x": np.zeros(3)})])
    assert not per_row("x", [(site, {"x": np.zeros(2)}), (other, {"x": np.zeros(2)})])


def numbers_of(site):
    columns = [site.y, site.task]
    frame = site.frame
    columns += [site.X] if frame is None else [frame[name].to_numpy() for name in frame.columns]
    found = set().union(*(rare_digits(column) for column in columns if column is not None))
    return found | {np.float32(cell).item() for cell in found}


def texts_of(site):
    frame = site.frame
    columns = [site.task] if frame is None else [frame[name].to_numpy() for name in frame.columns]
    found = {str(cell) for column in columns if column is not None for cell in column if isinstance(cell, str)}
    return {text for text in found if text.startswith("own-")}


def rare_digits(value):
    """Return the magnitudes of a value's numbers that have many digits."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return set()
    numbers = np.abs(array[np.isfinite(array)]).ravel()
    return {x for x in numbers.tolist() if len(f"{x:.{FEWEST_DIGITS}g}".replace(".", "").strip("0")) >= FEWEST_DIGITS}


def strings_in(value):
    if isinstance(value, str):
        return [value]
    array = np.asarray(value)
    return array.ravel().tolist() if array.dtype.kind == "U" else []


def per_row(key, replies):
    """Return whether an array has the site's number of rows along one axis, at sites of different sizes."""
    sizes = {len(site) for site, _ in replies}
    if len(sizes) < 2:
        return False
    shapes = [(len(site), np.shape(reply.get(key))) for site, reply in replies]
    axes = min(len(shape) for _, shape in shapes)
    return any(all(shape[axis] == rows for rows, shape in shapes) for axis in range(axes))
