"""``fedspan demo``: six cards, two tables, one page."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.cli.demo import demo_command
from fedspan.cli.demo.demo_command import CARDS
from fedspan.cli.demo.map_card import turned
from fedspan.cli.demo.rebuild_card import rebuild_card
from fedspan.cli.demo.time_left import TimeLeft

from ..report.chromium import Chromium, find_chromium


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo's folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "fedspan", "demo", "--out", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder.parent,
    )
    return folder, run.stdout, run.stderr


def test_the_demo_leaves_reports_and_exact_models(made):
    folder, shown, _ = made
    angles = [float(found) for found in re.findall(r"pooled rows: (\S+)", shown)]
    assert len(angles) == 2
    assert max(angles) < 1e-8
    page = (folder / "report.html").read_text()
    assert 'href="digits/report.html"' in page
    assert 'href="breast-cancer/report.html"' in page
    for name in ("digits", "breast-cancer"):
        assert (folder / name / "report.html").stat().st_size > 10_000
        assert fs.load(folder / name / "model.fedspan").components_.shape[0] == 10


def test_the_demo_runs_again_in_its_folder_with_another_seed(tmp_path, capsys, monkeypatch):
    few = ("alarm", "attack")
    monkeypatch.setattr(demo_command, "CARDS", {key: CARDS[key] for key in few})
    for seed in ("0", "1"):
        assert main(["demo", "--out", str(tmp_path / "demo"), "--seed", seed]) == 0
    shown = capsys.readouterr()
    assert "page: " in shown.out
    assert {path.parent.name for path in (tmp_path / "demo").glob("*/ten_lines.py")} == set(few)


def test_each_card_has_a_sentence_a_picture_a_number_and_two_links(made):
    folder, *_ = made
    page = (folder / "report.html").read_text(encoding="utf-8")
    cards = re.findall(r'<section class="card".*?</section>', page, flags=re.DOTALL)
    assert len(cards) == len(CARDS) == 6
    for key, card in zip(CARDS, cards, strict=True):
        assert card.count("<h2>") == card.count('<svg class="chart"') == card.count('class="big"') == 1
        assert re.search(r'class="big"><b>[^<]*\d', card)
        assert f'href="{key}/report.html"' in card
        assert f'href="#{key}-lines"' in card
        assert f'id="{key}-lines"' in page
        assert (folder / key / "report.html").stat().st_size > 10_000
        assert stat.S_IMODE((folder / key / "report.html").stat().st_mode) == 0o600


def test_the_numbers_are_those_that_the_cards_promise(made):
    folder, shown, _ = made
    page = unescape((folder / "report.html").read_text(encoding="utf-8"))
    map_, alarm, attack, groups, resume, rebuild = re.findall(r'class="big"><b>([^<]*)<', page)
    assert int(map_.rstrip("%")) >= 95
    assert int(alarm.rstrip("%")) >= 90
    assert int(attack.rstrip("%")) >= 95
    assert "0% by the mean" in shown
    assert (groups, resume, rebuild) == ("90 of 90", "0", "12 → 0")


def test_lines_of_python_are_ten_at_most_and_those_of_the_page(made):
    folder, *_ = made
    page = unescape((folder / "report.html").read_text(encoding="utf-8"))
    for key in CARDS:
        text = (folder / key / "ten_lines.py").read_text()
        assert len([line for line in text.splitlines() if line.strip()]) <= 10
        assert max(map(len, text.splitlines())) <= 70
        assert text.strip() in page


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("alarm", r"alarms: 9\d% of the attacks"),
        ("attack", r"covariance keeps \d\.\d+\nsubspace_median keeps 88\d"),
        ("groups", r"3 groups.*\n100% of the clinics"),
        ("rebuild", r"(?s)contain 12 of 12 rows.*No row was found"),
    ],
)
def test_lines_of_python_do_what_the_card_shows(key, words, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile((made[0] / key / "ten_lines.py").read_text(), key, "exec"), {"__name__": "lines_of_the_demo"})
    assert re.search(words, capsys.readouterr().out)


def test_a_killed_run_goes_on_when_its_lines_run_again(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = compile((made[0] / "resume" / "ten_lines.py").read_text(), "resume", "exec")
    for expected in (r"^0 of (\d+) calls", r"^(\d+) of \1 calls"):
        exec(code, {"__name__": "lines_of_the_demo"})
        assert re.search(expected, capsys.readouterr().out)


def test_progress_names_every_part_and_the_time_that_is_left(made):
    _, _, progress = made
    lines = progress.splitlines()
    assert len(lines) == len(CARDS) + 2
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"{number} of 8: .+, about \d+ s left", line)


def test_the_time_left_follows_from_the_parts_that_are_done(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("fedspan.cli.demo.time_left.time.perf_counter", lambda: clock[0])
    progress = TimeLeft({"one": 2.0, "two": 4.0})
    assert progress.seconds_left() == 6.0
    with progress.part("one"):
        clock[0] = 1.0  # twice as fast as expected
    assert progress.seconds_left() == 2.0
    with progress.part("two"):
        clock[0] = 3.0
    assert capsys.readouterr().err.splitlines() == [
        "1 of 2: one, about 6 s left",
        "2 of 2: two, about 2 s left",
    ]


def test_without_cryptography_the_card_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("fedspan.cli.demo.rebuild_card.find_spec", lambda name: None)
    card = rebuild_card(tmp_path, 0)
    assert "pip install .[secure]" in card.remark
    assert card.number == "12 → 0"


def test_a_map_is_turned_onto_another_one():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(50, 2))
    Y -= Y.mean(axis=0)
    angle = 2.0
    turn = np.array([[np.cos(angle), np.sin(angle)], [np.sin(angle), -np.cos(angle)]])
    np.testing.assert_allclose(turned(Y @ turn, Y), Y, atol=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: chromium, chromium-browser or google-chrome")
def test_the_page_fits_a_phone_and_a_desk_is_silent_and_loads_nothing(made, tmp_path):
    page = made[0] / "report.html"
    assert sum(path.stat().st_size for path in page.parent.rglob("*.html")) < 3_000_000
    browser = Chromium(tmp_path)
    try:
        for width, dark in ((390, False), (390, True), (1300, False), (1300, True)):
            browser.open(page, width=width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
            cut = (
                "[...document.querySelectorAll('svg text')].filter((text) => "
                "text.getBoundingClientRect().right > text.closest('section').getBoundingClientRect().right).length"
            )
            assert browser.run(cut) == 0
            if width == 1300:  # lines of Python are not broken
                assert browser.run(
                    "[...document.querySelectorAll('pre')].every((pre) => "
                    "Math.round((pre.clientHeight - 24) / parseFloat(getComputedStyle(pre).lineHeight)) "
                    "=== pre.textContent.split('\\n').length)"
                )
            assert browser.complaints == []
            assert browser.requests == [page.resolve().as_uri()]
    finally:
        browser.close()
