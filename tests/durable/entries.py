"""Where the entries of an append-only file begin and end, for tests that cut or change it."""

from __future__ import annotations

import json


def entry_bounds(path):
    """Return where each whole entry begins, and where the last one ends."""
    data = path.read_bytes()
    bounds = [0]
    while (end := data.find(b"\n", bounds[-1]) + 1) > 0:
        size = json.loads(data[bounds[-1] : end]).get("body_bytes")
        bounds.append(end if size is None else end + size + 1)
    return bounds if bounds[-1] <= len(data) else bounds[:-1]
