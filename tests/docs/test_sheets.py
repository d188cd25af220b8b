"""The protocol sheets name every protocol, and their numbers of bytes are right."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.local_pca_detector import local_detectors
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpg import fedpg
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.stack import stack_pca
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.pca.subspace_median import subspace_median

from ..laws.protocol_examples import EXAMPLES
from .test_guides import alike

SPEC = importlib.util.spec_from_file_location("costs", Path(__file__).parents[2] / "docs" / "costs.py")
costs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(costs)

D, K, ROWS = 30, 4, 50
X = np.random.default_rng(0).normal(size=(5 * ROWS, D)) * np.r_[[5.0] * K, [1.0] * (D - K)]

EXAMPLE = "**bytes up / down, [example](costs.md)**"
#: What the table at the top of every sheet states of each protocol, in this order; a sheet may have more.
FACTS = (
    "**leaves a site**",
    "**bytes up**",
    EXAMPLE,
    "**rounds**",
    "**memory, site**",
    "**memory, coordinator**",
    "**privacy**",
    "**trust**",
    "**paper against measured**",
)
#: What the other tables of the sheet of parts have of each.
PART_FACTS = ("leaves a site", "numbers up, calls", "memory, site", "privacy", "trust")

#: Protocol, settings, the id of the counted step, and how many numbers its reply has by the sheet.
SHEETS = [
    (covariance_pca, {"rank": K}, "pca.gram", D * (D + 1) // 2),
    (subspace_iteration, {"rank": K, "n_columns": D, "oversampling": 8}, "pca.product", D * (K + 8)),
    (stack_pca, {"rank": K}, "pca.axes", D * K),
    (power, {"rank": K, "n_columns": D}, "pca.product", D * K),
    (fedpg, {"rank": K, "n_columns": D, "max_rounds": 3}, "pca.fedpg_update", D * K),
    (subspace_median, {"rank": K}, "pca.basis", D * K),
    (median_of_means, {"rank": K, "n_columns": D, "groups": 3}, "pca.mean_product", D * K),
    (resilient_covariance, {"rank": K}, "pca.mean_gram", D * (D + 1) // 2),
    (local_detectors, {"rank": K, "level": 0.9}, "anomaly.detector", K * D + 2 * D + 2),
    (feddl, {"n_landmarks": 20, "rounds": 2, "precision": "double"}, "landmarks.pull", 20 * D),
]


def replies(protocol, settings):
    """Return the largest reply of each step in bytes, and the result."""
    with fs.federate(X, sites=np.arange(len(X)) % 5).begin("test") as run:
        found = protocol(run, **settings)
    return {call.step: max(call.bytes_up.values()) for call in run.record.calls}, found


@pytest.mark.parametrize(
    ("protocol", "settings", "step", "numbers"), SHEETS, ids=lambda value: getattr(value, "__name__", "")
)
def test_numbers_up(protocol, settings, step, numbers):
    up = replies(protocol, settings)[0][step]
    assert 8 * numbers <= up <= 8 * numbers + 200


def test_posted_distances_are_single_precision():
    landmarks = replies(feddl, {"n_landmarks": 20, "rounds": 2})[1]
    up = replies(landmark_distances, {"landmarks": landmarks})[0]["landmarks.distances"]
    assert 4 * ROWS * 20 <= up <= 4 * ROWS * 20 + 200


def test_every_protocol_is_on_a_sheet():
    missing = [name for name in EXAMPLES if costs.sheet_of(name) is None]
    assert not missing, "write on one of docs/protocols/*.md what leaves a site, and what it costs"


def tables(text):
    """Return the tables of a page, each with its header, as rows of cells."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    cells = [[[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()] for block in blocks]
    return [[header, *rows] for header, _, *rows in cells]


def facts(name):
    """Return the protocols that the first table of a sheet has in each column, and what it says of them by fact."""
    header, *rows = tables(costs.sheets()[name])[0]
    return [re.findall(r"`(\w+)`", cell) for cell in header[1:]], {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("name", sorted(costs.sheets()))
def test_a_sheet_has_every_fact_of_every_protocol_and_the_paper_beside_what_was_measured(name):
    columns, found = facts(name)
    assert [fact for fact in found if fact in FACTS] == list(FACTS)
    for fact, cells in found.items():
        assert len(cells) == len(columns), f"docs/protocols/{name}.md has not one cell a column for {fact}"
        assert all(cells), f"docs/protocols/{name}.md says nothing of {fact}"
    assert "\n## The paper, and what was measured\n" in costs.sheets()[name]


def test_every_protocol_has_its_column_or_is_a_part_with_every_fact():
    listed = [function for name in costs.sheets() for column in facts(name)[0] for function in column]
    for header, *rows in tables(costs.sheets()["parts"])[1:]:
        assert header == ["", *PART_FACTS]
        assert all(len(row) == len(header) and all(row) for row in rows)
        listed += [function for row in rows for function in re.findall(r"`(\w+)`", row[0])]
    missing = sorted(set(EXAMPLES) - set(listed))
    assert not missing, "give each a column in the table of a sheet, or a row on docs/protocols/parts.md"


@pytest.mark.parametrize("name", sorted(set(costs.sheets()) - {"parts"}))
def test_the_bytes_of_the_example_are_those_of_the_page_of_costs(name):
    page = costs.PAGE.read_text(encoding="utf-8")
    measured = {
        function: f"{up} / {down}" for function, up, down in re.findall(r"`(\w+)` .*\| ([\d,]+) \| ([\d,]+) \|", page)
    }
    columns, found = facts(name)
    for functions, cell in zip(columns, found[EXAMPLE], strict=True):
        wanted = [measured[function] for function in functions if function in measured]
        assert wanted
        written = re.findall(r"[\d,]*\d / [\d,]*\d", cell)
        assert written == wanted, f"docs/protocols/{name}.md: the bytes of {', '.join(functions)} are those of costs.md"


def test_the_costs_are_those_of_now():
    stored = dict(re.findall(r"^(\| `\w+` \|)(.*)$", costs.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    other = sorted(set(stored) ^ {f"| `{name}` |" for name in EXAMPLES})
    assert not other, "run: python docs/costs.py"
    for name in EXAMPLES:
        found = costs.line(name)
        first = found[: found.index("|", 2) + 1]
        assert alike(found, first + stored[first]), f"run: python docs/costs.py ({found})"
