"""``fedspan describe``: describe a study's data before anything is learned, and write one page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.checks import printable
from fedspan.cli.console import print_line, spreadsheet_cells
from fedspan.cli.study.study_file import DescribePlan, read_description
from fedspan.cli.study.study_tables import SiteTable, read_tables, words_in_words
from fedspan.datasets.sources import CSV_ENDINGS, Dialect
from fedspan.datasets.sources.csv_dialect import encoding_beside
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.progress import ProgressBar
from fedspan.report.overview_page import write_overview
from fedspan.statistics.describe.cross_counts import crosstab as crosstab_of
from fedspan.statistics.describe.histograms import histogram as histogram_of
from fedspan.statistics.describe.pair_statistics import correlation, covariance
from fedspan.statistics.describe.table_overview import Overview, overview

if TYPE_CHECKING:
    import pandas as pd

_MOST_LINES = 60


def describe_study(
    study: Path,
    out: Path | None,
    kit: Path | None,
    by: str | None,
    crosstab: list[str] | None = None,
    histogram: str | None = None,
    pairs: str | None = None,
) -> int:
    """Describe the tables of a study here, or those of the sites of a kit's federation, and write the page.

    `crosstab` (two columns), `histogram` (a column) and `pairs` (a method) print one table instead.
    """
    if sum(one is not None for one in (crosstab, histogram, pairs)) > 1:
        raise InputError("--crosstab, --histogram and --pairs are one table each: choose one of them")
    whole = crosstab is None and histogram is None and pairs is None
    ending = "" if out is None else out.suffix.lower()
    if out is not None and ending not in ((".html", ".csv") if whole else (".csv",)):
        raise InputError(f"--out {out} must end in {'.html or .csv' if whole else '.csv'}")
    plan = read_description(study, at_sites=kit is not None)
    page = out or study.with_suffix(".describe.html")
    if not page.parent.is_dir():
        raise InputError(f"{page} can't be written: its folder does not exist; choose another file with --out")
    tables = [] if kit is not None else read_tables(plan.data, text=True)
    for line in words_in_words(tables):
        print_line(line)
    by = by if by is not None else plan.by
    with _opened(plan, tables, kit) as fed:
        fed.observe(ProgressBar())
        frame = _one_table(fed, plan.settings, by, crosstab, histogram, pairs)
        found = overview(fed, by, **plan.settings) if frame is None else None
    if frame is not None:
        print(printable(frame.to_string(na_rep="", float_format=_shown)))
    if found is not None:
        _print(found)
        frame = found.description.to_frame()
    if frame is not None and out is not None and ending == ".csv":
        _write_table(frame, out, plan)
    elif found is not None:
        settings = {"study": str(study), "seed": str(plan.seed), "by": found.description.by or "no groups"}
        print_line(f"page: {write_overview(page, found, title=f'{study.stem}: a first look', settings=settings)}")
    return 0


def _write_table(frame: pd.DataFrame, out: Path, plan: DescribePlan) -> None:
    """Write a table as the study's first CSV file is written, with counts as whole numbers."""
    sources = (plan.data.file, *plan.data.files.values())
    like = next((source for source in sources if source is not None and source.ending in CSV_ENDINGS), None)
    dialect = Dialect() if like is None else like.dialect
    encoding = dialect.encoding if like is None else encoding_beside(like.file, dialect)

    def written(column: pd.Series[Any]) -> pd.Series[Any]:
        if column.dtype.kind == "f" and np.isfinite(column).all() and (column == column.round()).all():
            return column.astype("int64")
        return column

    cells = spreadsheet_cells(frame).apply(written)
    cells.to_csv(out, sep=dialect.separator or ",", decimal=dialect.decimal, encoding=encoding, errors="replace")
    print_line(f"table: {out}")


def _one_table(
    fed: Federation,
    settings: dict[str, Any],
    by: str | None,
    crosstab: list[str] | None,
    histogram: str | None,
    pairs: str | None,
) -> pd.DataFrame | None:
    """Return the table that was named instead of the page, if one was."""
    least = {key: settings[key] for key in ("least_set",) if key in settings}
    names = {key: settings[key] for key in ("categories",) if key in settings}
    if crosstab is not None:
        counted = crosstab_of(fed, crosstab[0], crosstab[1], **least, **names)
        if not math.isnan(counted.test.p):
            print_line(f"chi-square {counted.test.statistic:.4g}, p = {counted.test.p:.3g}")
        return counted.to_frame(margins=True)
    if histogram is not None:
        bins = {key: settings[key] for key in ("bins",) if key in settings}
        return histogram_of(fed, histogram, by=by, **bins, **least, **names).to_frame()
    if pairs == "covariance":
        return covariance(fed, **least).to_frame()
    return None if pairs is None else correlation(fed, method=pairs, **least).to_frame()


def _opened(plan: DescribePlan, tables: list[SiteTable], kit: Path | None) -> Federation:
    if kit is not None:
        from fedspan.engines.nvflare.client.connect import connect

        return connect(kit, seed=plan.seed, policy=plan.policy)
    return LocalFederation([table.site() for table in tables], seed=plan.seed, policy=plan.policy)


def _shown(value: float) -> str:
    return f"{value:.6g}"


def _print(found: Overview) -> None:
    """Print the table of columns, and which sites differ."""
    frame = found.description.to_frame()
    print(printable(frame.to_string(na_rep="", float_format=_shown, max_rows=_MOST_LINES)))
    if found.differences is not None:
        differing = found.differences.differing()
        for site, columns in differing.items():
            print_line(f"site {site} differs from the rest in {', '.join(columns[:8])}")
        left_out = found.differences.not_compared
        if left_out:
            print_line(
                f"{left_out} of {len(found.differences.sites)} sites not compared: counts of few rows would show"
            )
        if not differing:
            print_line("no site differs from the rest")
