"""The page of an audit: its headline is the worst of the card, and rows stand beside the rebuilt ones."""

from __future__ import annotations

import numpy as np

from fedspan.audit import LeakCard, LeakEntry
from fedspan.report.leak_page import write_leak_page

from .report_reading import Page


def entry(name, error, named):
    return LeakEntry(name, "", "", f"{name} found {named:.0%}.", {"relative_error": error, "reidentified": named})


def headline(path, *entries):
    page = write_leak_page(path, LeakCard("X", "nowhere", entries)).read_text()
    return page.split('class="result">')[1].split("<")[0]


def test_the_headline_is_of_the_worst_attack(tmp_path):
    path = tmp_path / "leaks.html"
    first, better, near = entry("a", 0.6, 0.5), entry("b", 0.4, 0.834), entry("c", 0.3, 0.834)
    assert headline(path, first, better) == "b found 83%."
    assert headline(path, first, near, better) == "c found 83%."
    unmeasured = LeakEntry("d", "", "", "Not measured."), LeakEntry("e", "", "", "Nor this.")
    assert headline(path, *unmeasured) == "Not measured."


def test_every_measure_and_fact_of_an_entry_is_on_the_page(tmp_path):
    measures = {"relative_error": 0.25, "psnr": np.inf, "reidentified": 0.5, "auc": 0.75}
    found = LeakEntry("guess", "sums", "nothing", "Half.", measures, facts={"determined": True, "averaged_rows": 3})
    page = Page(write_leak_page(tmp_path / "a.html", LeakCard("X", "y", (found,), ("Noted.",))).read_text())
    for words in ("least relative error 0.25", "best PSNR exact", "re-identified 50.0%", "membership AUC 0.750"):
        assert words in page.text
    for words in ("determined yes", "averaged rows 3", "Attacked: sums.", "Known to the attacker: nothing.", "Noted."):
        assert words in page.text


def rebuilt(rows):
    return LeakCard("X", "y", (LeakEntry("guess", "", "", "", rebuilt=rows),))


def test_rows_of_a_table_are_cells_true_and_rebuilt(tmp_path):
    truth = np.array([[0.0, 10.0], [2.0, 10.0], [4.0, 40.0]])
    card = rebuilt(truth[::-1])
    page = Page(write_leak_page(tmp_path / "a.html", card, truth=truth, columns=["age", "dose"]).read_text())
    assert len(page.all("figure")) == 3
    assert {"age, 1: 0", "age, 2: 4", "dose, 1: 10", "dose, 2: 40"} <= set(page.words)  # of the first row
    assert "Rows 1, 2, 3 of 3." in page.text
    assert "1: true rows; 2: guess." in page.text


def test_images_are_drawn_in_the_shades_of_the_true_ones(tmp_path):
    images = np.random.default_rng(0).random((30, 4))
    page = Page(write_leak_page(tmp_path / "a.html", rebuilt(images / 2), truth=images, image_shape=(2, 2)).read_text())
    assert len(page.all("figure")) == 2
    assert len(page.all("g", "tile")) == 20
