"""The page of a run that goes on: it loads itself again in a real browser, and ends with the run."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import LivePage

from .chromium import PATIENCE, Chromium, find_chromium

X = np.random.default_rng(0).normal(size=(60, 4))


@fs.step
def live_count(site):
    return {"n": len(site)}


def test_the_page_follows_the_runs_and_ends_with_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr("fedspan.report.live_page.EVERY", 0.0)
    monkeypatch.setattr("fedspan.report.live_page._LARGEST_SHARE", 1e9)
    live = LivePage(tmp_path / "live.html", "Three <sites>")
    seen = []
    fed = fs.federate(X, sites=np.arange(60) % 3)
    fed.observe(live)

    def protocol(fed):
        for number in fed.rounds(4):
            fed.sum(live_count)
            fed.log(loss=1.0 / (number + 1))
            seen.append(live.path.read_text(encoding="utf-8"))

    fed.run(protocol)
    assert "Round 1 of at most 4." in seen[0]
    assert "Round 4 of at most 4" in seen[3]
    assert all('http-equiv="refresh" content="2"' in text for text in seen)
    assert "Three &lt;sites&gt;" in seen[0]
    assert "loss" in seen[3]
    assert not any("Why it stopped" in text for text in seen)
    text = live.finish("report.html").read_text(encoding="utf-8")
    assert "refresh" not in text
    assert "Why it stopped" in text
    assert '<a id="report" href="report.html">' in text


def test_a_failed_run_is_not_loaded_again(tmp_path):
    live = LivePage(tmp_path / "live.html")
    fed = fs.federate(X, sites=np.arange(60) % 3)
    fed.observe(live)
    with pytest.raises(InputError):
        fs.FedPCA(100).fit(fed)
    text = live.path.read_text(encoding="utf-8")
    assert "refresh" not in text
    assert "n_components=100" in text
    with pytest.raises(InputError, match="its folder does not exist"):
        LivePage(tmp_path / "none" / "live.html")


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
def test_a_browser_loads_it_again_by_itself(tmp_path):
    live = LivePage(tmp_path / "live.html")
    fed = fs.federate(X, sites=np.arange(60) % 3)
    fed.observe(live)
    browser = Chromium(tmp_path / "profile")
    try:
        browser.open(live.path, width=390)
        assert "Nothing has begun" in browser.run("document.getElementById('now').textContent")
        fs.FedPCA(2).fit(fed)
        live.finish("report.html")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not has_ended(browser):
            time.sleep(0.05)
        assert browser.run("document.getElementById('report').textContent") == "The report of the run"
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints == []
    finally:
        browser.close()


def has_ended(browser):
    try:
        return browser.run("document.getElementById('report') !== null")
    except AssertionError:  # the page is being replaced
        return False
