"""Reports in a real browser, at two widths, in light and dark: everything is drawn, and what can be moved moves."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fedspan.federation import Failure, PrivacySpent
from fedspan.federation.outcomes import FailureKind
from fedspan.report import Judged, write_report

from .chromium import PATIENCE, Chromium, find_chromium
from .report_examples import COLUMNS, NAMES, fitted, table
from .report_reading import FINISHED, a_call, a_record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: chromium, chromium-browser or google-chrome"),
]

WINDOWS = [(1300, False), (390, True)]
LOOKS = [(1300, False), (1300, True), (390, True)]
PROBES = Path(__file__).with_name("report_probes.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


def shown(browser, page, width, dark):
    """Open a page, and find nothing wrong with it."""
    browser.open(page, width=width, dark=dark)
    browser.run(PROBES)
    assert browser.run("faults()") == []
    assert browser.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark


def assert_quiet(browser, page):
    """Nothing in the console, and nothing requested from the network but the file itself."""
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()]


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_drawn_at_two_widths_in_light_and_dark(name, browser, tmp_path):
    model = fitted(name)
    page = write_report(tmp_path / "report.html", title=name, records=model.run_, models=[model])
    for width, dark in LOOKS:
        shown(browser, page, width, dark)
        if browser.run("el('map-canvas') !== null"):
            assert browser.until("pixels()")
        assert_quiet(browser, page)


def test_a_page_with_errors_and_requests_to_the_network_is_caught(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<!DOCTYPE html><body style="width: 3000px"><img src="http://localhost:9/x.png">'
        '<section id="wide"><div class="scroll" style="width: 90px; overflow-x: auto">'
        '<p style="width: 95px"></div></section>'
        '<svg class="chart" aria-label="nothing"></svg><script>console.error("no"); nothing();</script>'
    )
    browser.open(page, width=1200)
    browser.run(PROBES)
    found = " ".join(browser.run("faults()"))
    for words in ("wide in a window of 1200", "nothing is empty", "no figure", "a table in wide is 95 wide in 90"):
        assert words in found
    assert "http://localhost:9/x.png" in browser.requests
    assert len(browser.complaints) >= 2


@pytest.mark.parametrize("dark", [False, True])
def test_tables_with_many_words_have_room_in_a_window_of_a_desk(browser, tmp_path, dark):
    names = [f"the clinic with number {i} in the north of the country" for i in range(9)]
    why = Failure(FailureKind.BUDGET_SPENT, "this site refuses " * 9)
    calls = [
        a_call(
            i, f"fedspan.landmarks.landmark_distances.{step}", names, failed=dict.fromkeys(names[:6], why), how="ask"
        )
        for i, step in enumerate(["local_squared_distances_of_rows", "local_distances_of_landmarks_to_rows"] * 3)
    ]
    spent = PrivacySpent("noise", dict.fromkeys(names, 1.5), 1e-5, dict.fromkeys(names, 1.5), ("sums",))
    model = fitted("FedPCA")
    record = a_record(sites=names, calls=calls, privacy=spent, stopped=FINISHED)
    page = write_report(tmp_path / "report.html", title="words", records=record, models=[model])
    shown(browser, page, 1300, dark)


def test_a_detector_is_judged_at_the_threshold_that_it_learned(browser, tmp_path):
    model = fitted("FedPCADetector")
    X, *_ = table()
    odd = X + 9.0 * np.random.default_rng(1).normal(size=X.shape)
    rows = type(X)(np.concatenate([X, odd]), columns=COLUMNS)
    judged = Judged(rows, np.arange(len(rows)) >= len(X))
    page = write_report(tmp_path / "report.html", title="ROC", records=model.run_, models=[model], judged=judged)
    alarm = model.predict(rows) < 0
    for width, dark in WINDOWS:
        shown(browser, page, width, dark)
        assert browser.run("rocDot()") == pytest.approx([alarm[: len(X)].mean(), alarm[len(X) :].mean()], abs=0.01)
        assert_quiet(browser, page)


@pytest.fixture
def on_map(browser, tmp_path):
    """The report of a map, in a window."""
    model = fitted("FedTSNE")
    page = write_report(tmp_path / "map.html", title="map", records=model.run_, models=[model])

    def opened(width, dark):
        shown(browser, page, width, dark)
        browser.run("el('map-box').scrollIntoView()")
        return model, browser.until("changed(0)")

    yield opened
    assert_quiet(browser, page)


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_pointing_at_a_dot_shows_its_site_and_row(browser, on_map, width, dark):
    model, _ = on_map(width, dark)
    left, top, wide, high = browser.run("box(el('map-canvas'))")
    low, upper = model.embedding_.min(axis=0), model.embedding_.max(axis=0)
    scale = 0.94 * min((np.array([wide, high]) - 16) / (upper - low))
    rows = np.concatenate([np.arange(count) for count in np.bincount(model.row_sites_)])
    for row in (0, 100, 239):
        right, up = (model.embedding_[row] - (low + upper) / 2) * scale
        browser.mouse("mouseMoved", left + wide / 2 + right, top + high / 2 - up)
        site, number = browser.until("shown_text()").split("\n")
        # Dots may lie on top of one another: it is one of those within two pixels.
        near = np.linalg.norm((model.embedding_ - model.embedding_[row]) * scale, axis=1) < 2
        assert (site, number) in {(model.sites_[model.row_sites_[i]], f"row {rows[i]}") for i in np.flatnonzero(near)}
        browser.mouse("mouseMoved", left + wide + 20, top + high / 2)
        assert browser.until("el('map-tip').hidden && el('map-ring').hidden")


def test_colouring_changes_the_picture_and_the_legend(browser, on_map):
    _, by_site = on_map(1300, False)
    assert browser.run("legend()") == "east,north,south,west"
    browser.run("choose('density')")
    by_density = browser.until(f"changed({by_site})")
    assert " to " in browser.run("legend()")
    browser.run("choose('site')")
    assert browser.until(f"changed({by_density})") == by_site
    browser.run("document.querySelector('#map-legend button').click()")
    assert browser.until(f"changed({by_site})") != by_density  # one site alone


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_zooming_and_moving_change_the_picture_and_can_be_undone(browser, on_map, width, dark):
    _, before = on_map(width, dark)
    left, top, wide, high = browser.run("box(el('map-canvas'))")
    x, y = left + wide / 2, top + high / 2
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    zoomed = browser.until(f"changed({before})")
    browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", x + 60, y + 30, button="left", buttons=1)
    moved = browser.until(f"changed({zoomed})")
    browser.mouse("mouseReleased", x + 60, y + 30, button="left", clickCount=1)
    browser.run("el('map-in').click()")
    assert browser.until(f"changed({moved})") not in (before, zoomed)
    browser.run("el('map-all').click()")
    assert browser.until(f"pixels() === {before}")


def test_the_browser_ends_with_all_of_its_processes(tmp_path):
    """Its profile's folder names the processes of a browser, and none of them is left."""
    browser = Chromium(tmp_path / "profile")
    assert browser.run("1 + 1") == 2
    assert processes_with(str(tmp_path / "profile"))
    browser.close()
    deadline = time.monotonic() + PATIENCE  # the kernel needs a moment to end them
    while processes_with(str(tmp_path / "profile")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not processes_with(str(tmp_path / "profile"))


def processes_with(text):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:  # it has just ended
            continue
    return found
