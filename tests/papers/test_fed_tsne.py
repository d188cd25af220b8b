"""A whole run of the reproduction of Fed-tSNE on made-up rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedspan.papers import fed_tsne
from fedspan.papers.fed_tsne import NOISY, PLAIN, PLAIN_IID, PRIVATE_TSNE, Plan, learned_paper, run_plan

from .blobs import blobs


@pytest.fixture
def quick_layouts(monkeypatch):
    """Maps by principal components alone: layouts take long, and are tested elsewhere."""

    def start(face, indices, distances, coordinates, mirror=(1, 1)):
        assert indices.shape == distances.shape
        return np.linalg.svd(coordinates - coordinates.mean(axis=0), full_matrices=False)[0][:, :2]

    monkeypatch.setattr(learned_paper, "laid_out", start)


def test_whole_run_has_every_table_and_is_saved(quick_layouts, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(fed_tsne.LOADERS, "MNIST", lambda n: blobs(n))
    plan = Plan(
        maps={"MNIST": (80, (PLAIN_IID, PLAIN, NOISY, PRIVATE_TSNE))},
        clusters={"MNIST": 80},
        swept=("MNIST", 80),
        sites={"by class": (4,), "IID": (5,)},
        landmarks=(4, 8),
        betas=(0.0, 1.0),
        few_landmarks=8,
        rounds=4,
    )
    results = run_plan(plan, processes=1)
    results.print()
    results.save(tmp_path)
    tables = {part.title: part for part in results.parts}
    lines = {row[0]: row for row in tables["blobs, 80 rows: t-SNE"].rows}
    assert list(lines) == [
        "centralised",
        *("paper's form, IID", "ours, IID", "paper's form, one class", "ours, one class"),
        *("paper's form, one class, paper's noise", "ours, one class, paper's noise"),
        "ours, one class, guaranteed noise",
    ]
    assert lines["paper's form, one class"][2].endswith("[.948]")
    assert lines["centralised"][2].endswith("[.966]")
    assert "[" not in lines["ours, one class"][2]
    assert lines["ours, one class"][1:9] == lines["ours, IID"][1:9]
    assert lines["ours, one class, guaranteed noise"][9] == "8"
    assert "ours, one class, guaranteed noise" not in {row[0] for row in tables["blobs, 80 rows: UMAP"].rows}
    pictures = tables["blobs: the maps"].maps
    assert "UMAP, paper's form, one class" in pictures
    assert not any("noise" in name for name in pictures)
    assert all(places.shape == (80, 2) for places in pictures.values())
    curves = tables["blobs, 80 rows: MMD^2 by round"].lines
    assert all(len(x) == 5 for x, _ in curves.values())
    assert curves["default, IID"][1] == pytest.approx(curves["default, one class"][1], rel=1e-6)
    assert json.loads((tmp_path / "results.json").read_text())["title"] == results.title
    assert (tmp_path / "report.html").exists()
    assert "not private against the coordinator" in " ".join(capsys.readouterr().out.split())
