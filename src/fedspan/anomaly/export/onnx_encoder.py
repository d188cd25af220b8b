"""The encoder and the scalers of a pipeline as nodes of an ONNX graph.

Its inputs are ``numbers`` (n, p), NaN where a cell is missing, and ``texts`` (n, q), empty where one is; each in the
order of the table's columns, whose names are in the model's properties of these names. Texts are names as the encoder
has them: a gateway tidies white space and writes ``80.0`` as ``80``, a graph does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.gateway.cell_encoder import PREFIX
from fedspan.gateway.cell_text import LARGEST, MISSING

#: The number that a text gets if it is missing; other numbers are places among the names.
_GAP = -1


def encoder_nodes(graph: Any, arrays: Mapping[str, Array]) -> str:
    """Add the nodes of an encoder; return the name of the encoded rows."""
    own = {key.removeprefix(PREFIX): value for key, value in arrays.items() if key.startswith(PREFIX)}
    text, parts = own["text"].astype(bool), []
    sizes, names = iter(own["sizes"]), iter(str(one) for one in own["names"])
    unexpected, seen, at = [], {True: 0, False: 0}, 0
    if not text.all():
        graph.add("Cast", "numbers", to="numbers_as_double", to_type=graph.double)
    for j, is_text in enumerate(text):
        place = graph.ints([seen[bool(is_text)]])
        seen[bool(is_text)] += 1
        known = [next(names) for _ in range(int(next(sizes)))] if is_text else []
        width = len(known) + bool(own["other"]) if is_text else 1
        fill = own["fill"][at : at + width]
        marked = bool(own["missing"][j])
        if is_text:
            block, gap = _names(graph, graph.add("Gather", "texts", place, axis=1), known, width, fill, marked)
        else:
            cells = graph.add("Gather", "numbers_as_double", place, axis=1)
            block, gap = _values(graph, cells, bool(own["log"][j]), fill)
        parts += [block, gap] if marked else [block]
        unexpected += [] if marked else [gap]
        at += width + marked
    if own["unexpected"]:
        gaps = graph.add("Sum", *unexpected)
        parts.append(graph.add("Mul", gaps, graph.const(np.float64(own["unexpected"]))))
    rows: str = graph.add("Concat", *parts, axis=1)
    if "scale" in own:
        rows = graph.add("Div", graph.add("Sub", rows, graph.const(own["fill"])), graph.const(own["scale"]))
    return rows


def _values(graph: Any, cells: str, log: bool, fill: Array) -> tuple[str, str]:
    """Add a column of numbers (n, 1), and its gaps as 0 and 1."""
    size = graph.add("Abs", cells)
    fits = graph.add("LessOrEqual", size, graph.const(np.float64(LARGEST)))  # false for NaN
    if log:
        # By log1p's own rule: log(1 + x) loses digits of small x, and x / ((1 + x) - 1) gives them back.
        one = graph.const(np.float64(1.0))
        raised = graph.add("Add", size, one)
        apart = graph.add("Sub", raised, one)
        safe = graph.add("Where", graph.add("Greater", apart, graph.tiny()), apart, one)
        logged = graph.add("Mul", graph.add("Log", raised), graph.add("Div", size, safe))
        whole = graph.add("Where", graph.add("Greater", apart, graph.tiny()), logged, size)
        cells = graph.add("Mul", whole, graph.add("Sign", cells))
    gap = graph.add("Cast", graph.add("Not", fits), to_type=graph.double)
    return graph.add("Where", fits, cells, graph.const(fill)), gap


def _names(graph: Any, cells: str, known: list[str], width: int, fill: Array, marked: bool) -> tuple[str, str]:
    """Add a column of 0 and 1 for each name (n, width), and the gaps (n, 1)."""
    places = {mark: _GAP for lower in MISSING for mark in (lower, lower.upper(), lower.capitalize())}
    places |= {"NaN": _GAP, "NaT": _GAP, **{text: i for i, text in enumerate(known)}}
    found = graph.label_encoder(cells, list(places), list(places.values()), len(known))
    equal = graph.add("Equal", found, graph.const(np.arange(width, dtype=np.int64)[None]))
    block = graph.add("Cast", equal, to_type=graph.double)
    is_gap = graph.add("Equal", found, graph.const(np.array([[_GAP]], dtype=np.int64)))
    if not marked:
        block = graph.add("Where", is_gap, graph.const(fill[None]), block)
    return block, graph.add("Cast", is_gap, to_type=graph.double)
