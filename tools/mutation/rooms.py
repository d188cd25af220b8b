"""The rooms that are changed, and the tests of each."""

from __future__ import annotations

from pathlib import Path

CAPABILITIES = (
    *("pca", "tables", "sums", "anomaly", "few_shot", "mixed_regression", "landmarks", "clustering", "maps"),
    *("model_selection", "statistics", "atlases"),
)
#: The rooms of ``src/fedspan`` that are changed.
ROOMS = (
    *("linalg", "aggregation", "attacks", "federation", "durable", "secure_sum", "privacy", "owner", "engines"),
    *CAPABILITIES,
    *("audit", "report", "datasets", "gateway", "plots", "tracking"),
)
#: Laws that also test a room, beside ``tests/<room>`` and the room's doctests.
LAWS = {
    "aggregation": ("tests/laws/test_aggregators.py",),
    "engines": ("tests/laws/test_engines.py",),
    **dict.fromkeys(CAPABILITIES, ("tests/laws/test_protocols.py",)),
}
#: Not run: these start processes, which read their code from the disk, or take long.
IGNORED = (
    "tests/engines/nvflare",
    "tests/owner/test_owned_site_postgres.py",
    "tests/secure_sum/test_sum_protocols.py",
)
#: Not changed: its tests start processes.
UNCHANGED = "src/fedspan/engines/nvflare/"


def room_tests(room: str) -> list[str]:
    """Return the folders and files whose tests run against changes of a room."""
    tests = (f"tests/{room}", *LAWS.get(room, ()), f"src/fedspan/{room}")
    return [path for path in tests if Path(path).exists()]
