"""The page as a whole: well formed, whole, self-contained, hostile names harmless, written in one go."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

from fedspan.errors import InputError
from fedspan.federation import Ending
from fedspan.federation.outcomes import EndingKind
from fedspan.report import Scatter, write_index, write_report
from fedspan.report.page import asset

from .report_reading import FINISHED, NO_REPLY, Page, a_call, a_record, late, logging

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"
SECTIONS = ["requested", "sites", "rounds", "stopped", "metrics", "failures", "privacy", "rerun"]


def written(tmp_path, **given) -> Page:
    given = {"title": "A study", "records": [], **given}
    return Page(write_report(tmp_path / "report.html", **given).read_text(encoding="utf-8"))


def scatter_of(sites, labels=None):
    return Scatter(np.arange(2.0 * len(sites)).reshape(-1, 2), np.array(sites), np.arange(len(sites)), labels)


def full_page(tmp_path) -> Page:
    record = a_record(calls=[a_call(0, "f", ["a", "b"], failed={"b": NO_REPLY})], stopped=FINISHED)
    model = PCA(2).fit(np.random.default_rng(0).normal(size=(20, 3)))
    return written(
        tmp_path, records=[record], models=[model], scatter=scatter_of(["a", "b"]), settings={"file": "x.csv"}
    )


def test_page_has_every_section_and_a_link_to_each(tmp_path):
    page = full_page(tmp_path)
    sections = [a["id"] for a in page.all("section")]
    assert sections == ["map", "models", *SECTIONS]
    assert [a["href"] for a in page.all("a")] == [f"#{key}" for key in sections]
    assert [a["id"] for a in page.all("h2")] == [f"{key}-h" for key in sections]


def test_ids_are_unique_and_references_lead_somewhere(tmp_path):
    page = full_page(tmp_path)
    assert len(page.ids) == len(set(page.ids))
    assert {a["aria-labelledby"] for a in page.all("section")} <= set(page.ids)


def test_script_finds_every_element_that_it_looks_for(tmp_path):
    page = full_page(tmp_path)
    wanted = set(re.findall(r'el\("([a-z-]+)"\)', page.raw["script"][-1]))
    assert len(wanted) >= 8
    assert wanted - {"map-colour"} <= set(page.ids)  # the select is there only with labels
    with_labels = written(tmp_path, scatter=scatter_of(["a", "b"], np.array([0, 1])))
    assert wanted <= set(with_labels.ids)


def test_page_needs_nothing_from_outside(tmp_path):
    page = full_page(tmp_path)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bfetch\(|XMLHttpRequest|import\(", page.html.lower())
    for tag, attrs in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "srcset", "action", "style"} & set(attrs), tag
        assert attrs.get("href", "#").startswith("#")


def test_policy_allows_this_style_and_this_script_alone(tmp_path):
    page = full_page(tmp_path)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for text in (page.raw["style"][0], page.raw["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_page_without_a_map_has_no_script(tmp_path):
    page = written(tmp_path, records=[a_record()])
    assert page.all("script") == []
    assert "script-src 'none'" in page.html


def test_hostile_names_are_shown_and_do_nothing(tmp_path):
    sites = [f"{HOSTILE}{i}" for i in range(3)]
    record = logging([{HOSTILE: 1.0}, {HOSTILE: 2.0}, {"text": HOSTILE}], what=HOSTILE, sites=sites)
    record.stopped = Ending(EndingKind.STOPPED, HOSTILE)
    record.settings = {HOSTILE: HOSTILE}
    record.calls = [a_call(0, HOSTILE, sites, failed={sites[1]: late(HOSTILE)})]

    class Model:
        components_ = np.eye(2)
        mean_ = scale_ = np.ones(2)
        feature_names_in_ = np.array([HOSTILE, "y"], dtype=object)

    Model.__name__ = HOSTILE
    scatter = Scatter(np.eye(3, 2), np.array(sites), np.arange(3), np.array([HOSTILE] * 3), HOSTILE, HOSTILE)
    page = written(
        tmp_path,
        title=HOSTILE,
        records=[record, record],
        models=[Model()],
        sites={site: {"rows": 1, "columns": 1} for site in sites},
        scatter=scatter,
        settings={HOSTILE: HOSTILE},
    )
    assert page.all("img") == []
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert len(page.all("script")) == 2
    assert page.html.lower().count("</script") == 2
    assert page.text.count(HOSTILE) > 10
    data = page.map_data()
    assert data["ways"]["site"]["names"] == sites
    assert data["ways"]["label"]["names"] == [HOSTILE]
    assert data["axes"] == [HOSTILE, HOSTILE]


def test_style_and_script_cannot_end_their_own_tags():
    for name in ("report.css", "points.js", "scatter.js"):
        assert "</" not in asset(name).replace("</svg>", "").replace("</span>", "").replace("</button>", "")


def test_empty_record_and_no_record(tmp_path):
    page = written(tmp_path, records=[a_record(sites=())])
    assert [a["id"] for a in page.all("section")] == SECTIONS
    for words in (
        "not ended: still running, or it was killed",
        "No call was made",
        "Nothing was logged",
        "There was no site",
        "No site was called",
    ):
        assert words in page.text
    assert "No run was recorded" in written(tmp_path, records=[]).text


def test_one_record_without_a_list(tmp_path):
    assert "Lonely" in written(tmp_path, records=a_record("Lonely")).text


def test_one_site(tmp_path):
    page = written(tmp_path, records=[a_record(sites=("only",), calls=[a_call(0, "f", ["only"])])])
    assert "1 site; each one that was called answered at least once" in page.text
    assert "only 1 of 1 0 20 10" in page.text


def test_thousand_sites_and_five_thousand_calls_stay_small(tmp_path):
    names = [f"site-{i:04d}" for i in range(1000)]
    record = logging([{f"metric {j}": float(i * j) for j in range(14)} for i in range(2500)], sites=names)
    record.calls = [a_call(i, f"module.step_{i % 3}", names[i % 50 :: 50], turn=i // 2) for i in range(5000)]
    record.metrics = [replace(entry, call=2 * entry.call + 1) for entry in record.metrics]
    path = write_report(
        tmp_path / "report.html",
        title="Large",
        records=[record],
        sites={name: {"rows": 7, "columns": 3} for name in names},
    )
    assert path.stat().st_size < 150_000
    page = Page(path.read_text(encoding="utf-8"))
    assert "site-0029" in page.text
    assert "site-0030" not in page.text
    assert "and 970 more sites 6 790" in page.text
    assert "5 000 calls in 2 500 rounds" in page.text
    assert page.text.count(" module.step_0 ") == 4  # once in two charts and in two tables


def test_same_input_gives_the_same_bytes(tmp_path):
    assert full_page(tmp_path).html == full_page(tmp_path).html


def test_file_is_private_and_nothing_is_left_beside_it(tmp_path):
    path = write_report(str(tmp_path / "report.html"), title="A study", records=[])
    assert path == tmp_path / "report.html"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_failure_while_writing_leaves_the_old_report(tmp_path, monkeypatch):
    path = write_report(tmp_path / "report.html", title="Old", records=[])
    old = path.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, title="New", records=[])
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_name_without_bytes_in_utf8_is_written_with_a_question_mark(tmp_path):
    page = written(tmp_path, records=[a_record(sites=("bad\udc80name",))])
    assert "bad?name" in page.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"records": ["text"]}, "not a str"),
        ({"scatter": [[0, 1]]}, "must be a fedspan.report.Scatter, not a list"),
        ({"sites": {"a": {"rows": "many"}}}, r"sites\['a'\] has rows='many'"),
        ({"sites": {"a": {"lines": 3}}}, r"sites\['a'\] has lines=3"),
    ],
)
def test_bad_input_is_refused(tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        written(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="its folder does not exist"):
        write_report(tmp_path / "no" / "report.html", title="A study", records=[])


def test_an_index_leads_to_reports(tmp_path):
    reports = {"one/report.html": {"title": "One <b>", "rows": "3"}, "two/report.html": {"title": "Two", "rows": "4"}}
    page = Page(write_index(tmp_path / "index.html", title="All", lead="Two of them.", reports=reports).read_text())
    assert [a["href"] for a in page.all("a")] == list(reports)
    assert "All Two of them. One <b> rows 3 Two rows 4" in page.text
    assert page.all("b") == []
