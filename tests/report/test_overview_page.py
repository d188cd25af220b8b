"""The page of a first look shows what is published and nothing that is suppressed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.report import overview_page
from fedspan.report.charts.count_bars import count_bars
from fedspan.report.overview_page import write_overview

from ..statistics.hospital_table import federated, patients


def page_of(tmp_path, fed, **settings):
    return write_overview(tmp_path / "look.html", fs.statistics.overview(fed, **settings), title="A look").read_text(
        encoding="utf-8"
    )


def test_small_sites_and_names_are_not_on_the_page(tmp_path):
    table = patients(120)
    table.loc[0, "code"] = "secret name"
    page = page_of(tmp_path, federated(table, "tiny"))
    assert "secret name" not in page
    assert "tiny" not in page.split("Privacy")[0].split("Which site differs")[1]
    assert "2 sites left out, because counts of few rows would show." in page


def test_names_are_escaped(tmp_path):
    table = patients(60).rename(columns={"age": "<b>age"})
    table["sex"] = table["sex"].map({"f": "<i>", "m": "m"})
    page = page_of(tmp_path, federated(table), by="sex")
    assert "<b>age" not in page
    assert "<i>" not in page


def test_tables_of_text_or_numbers_alone(tmp_path):
    page = page_of(tmp_path, federated(pd.DataFrame({"ward": list("abcd") * 10})))
    assert "Correlations" not in page
    rows = fs.federate(np.arange(40.0)[:, None], sites=np.zeros(40))
    page = page_of(tmp_path, rows)
    assert "column of text" not in page
    assert "Which site differs" not in page


def test_suppressed_counts_have_a_dash():
    drawn = count_bars(np.arange(4.0), np.array([8.0, np.nan, 0.0]), (np.nan, 6.0), label="x", x_label="")
    assert drawn.count("suppressed") == 2
    assert "above: 6" in drawn
    assert "2 to 3" not in drawn  # no bar of no rows


@pytest.mark.parametrize(("mean", "std", "digits"), [(0.0, 1.0, 4), (5.0, 0.0, 4), (1000.0, 0.5, 7), (1e9, 1e-9, 12)])
def test_digits_show_differences_of_a_hundredth_of_the_deviation(mean, std, digits):
    seen = SimpleNamespace(mean=np.array([[mean]]), std=np.array([[std]]))
    assert overview_page._digits(seen, 0) == digits
