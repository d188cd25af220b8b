"""The report of every estimator: its pictures, what must be on its page, and lines that repeat it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.report import write_report
from fedspan.report.models.map_pictures import map_of
from fedspan.report.models.picture import pictures_of
from fedspan.report.sections.privacy_section import leaves_and_reveals
from fedspan.report.sections.rerun import python_lines

from .report_examples import NAMES, TARGETS, fitted, table
from .report_reading import Page

every_estimator = pytest.mark.parametrize("name", NAMES)


@every_estimator
def test_it_has_pictures_of_its_own(name):
    model = fitted(name)
    pictures = pictures_of(model)
    assert pictures or map_of(model), f"{name} has no picture in its report: add one to fedspan.report.models"
    for picture in pictures:
        Page(picture.body)
        drawn = any(mark in picture.body for mark in ("<rect", "<path", "<polyline", "<circle", "<td", "<dd"))
        assert drawn, f"the picture {picture.title!r} of {name} draws nothing, and is no table of two columns or more"


@every_estimator
def test_its_page_has_what_it_must_have(name, tmp_path):
    model = fitted(name)
    page = Page(write_report(tmp_path / "r.html", title="t", records=model.run_, models=[model]).read_text())
    assert "No picture for" not in page.text
    for key in ("models", "requested", "sites", "rounds", "stopped", "failures", "privacy", "rerun"):
        assert key in page.ids
    for site in model.sites_:
        assert f"{site} " in page.text
    for words in (f"numpy {np.__version__}", "fedspan 0.1.0", "python 3.", "scikit-learn", "No noise was added"):
        assert words in page.text
    for call in model.run_.calls:
        assert leaves_and_reveals(call.step)[0] != "–", f"{call.step} does not state what leaves the site"


@every_estimator
def test_the_lines_of_its_report_run_it_again(name):
    """The Python lines, from the record as it is read from a file, give the same model to the last bit."""
    model = fitted(name)
    record = fs.RunRecord.from_lines(model.run_.lines())
    X, y, task, sites = table()
    known = {"X": X, "y": TARGETS.get(name, np.asarray)(y), "task": task, "sites": sites}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(python_lines([record]), known)
    again = vars(known["model"])
    for key, value in vars(model).items():
        if key.endswith("_") and key != "run_":
            np.testing.assert_equal(again[key], value, err_msg=key)  # also dicts of arrays
