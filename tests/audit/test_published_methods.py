"""Cards of published methods: the rows that their own messages give away, and the repaired form beside them."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from fedspan.audit.published_methods import METHODS, Images, image_sets, method_card
from fedspan.errors import InputError


@pytest.fixture(scope="module")
def few():
    """The digits that are always there; fewer rows make the same point."""
    digits = image_sets()[0]
    return Images(digits.name, digits.rows[:120], digits.classes[:120] % 3, digits.others)


def test_the_command_knows_all_methods():
    assert set(METHODS) == set(import_module("fedspan.cli.main").METHODS)


def test_fed_tsne_gives_away_every_row(few):
    card = method_card("fed-tsne", few)
    assert card.entries[0].measures["rebuilt"] == 1.0
    assert "100 landmarks" in card.where
    (repaired,) = card.beside
    assert repaired.what == "FedTSNE(share='centers')"
    assert all(entry.measures.get("rebuilt", 0.0) == 0.0 for entry in repaired.entries)
    assert not [entry for entry in repaired.entries if entry.attack.startswith("search")]
    assert "rows to 1e-6" in str(card)


def test_sense_gives_away_the_rows_in_the_span_of_its_anchors(few):
    card = method_card("sense", few)
    anchors = few.others[:63]
    centre = anchors.mean(axis=0)
    _, spread, axes = np.linalg.svd(anchors - centre, full_matrices=False)
    axes = axes[spread > 1e-10 * spread[0]]
    outside = np.linalg.norm((few.rows - centre) - (few.rows - centre) @ axes.T @ axes, axis=1)
    assert card.entries[0].measures["rebuilt"] == np.mean(outside < 1e-6) > 0.8
    assert len(axes) < 63  # fewer anchors than columns are enough


def test_other_methods_are_refused(few):
    with pytest.raises(InputError, match="choose one of fed-tsne, sense"):
        method_card("none", few)
