"""The leak card: its table, its text and its file."""

from __future__ import annotations

import json
import stat

import numpy as np

import fedspan as fs
from fedspan.audit import LeakCard, LeakEntry, audit


def test_a_saved_card_has_no_rows_and_is_for_its_owner_alone(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, random_state=0).fit(X, sites=np.arange(60) % 3)
    card = audit(model, truth=X, image_shape=(1, 5))
    path = tmp_path / "card.json"
    card.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = json.loads(path.read_text())
    assert kept == card.to_dict()
    assert "rebuilt" not in kept["entries"][0]
    assert kept["entries"][0]["measures"] == card.entries[0].measures
    assert "PSNR is for values between" in str(card)


def test_an_infinite_psnr_is_exact(tmp_path):
    card = LeakCard("x", "y", (LeakEntry("a", "t", "k", "v", {"psnr": float("inf")}),))
    assert card.lines()[-1] == ["a", "exact"]
    card.save(tmp_path / "card.json")
    kept = json.loads((tmp_path / "card.json").read_text())
    assert kept["entries"][0]["measures"]["psnr"] == {"float": "inf"}


def test_two_cards_stand_in_one_table():
    first, second = (
        LeakCard(name, "a model", (LeakEntry("guess", "rows", "the mean", "Little.", {"relative_error": error}),))
        for name, error in (("one", 0.5), ("two", 0.25))
    )
    both = LeakCard(first.what, first.where, first.entries, beside=(second,))
    head = ["attack", "relative error"]
    assert both.lines() == [head, ["one", ""], ["guess", "0.5"], ["two", ""], ["guess", "0.25"]]
    assert both.to_dict()["beside"][0]["entries"] == second.to_dict()["entries"]
    assert str(both).count("guess  ") == 2
