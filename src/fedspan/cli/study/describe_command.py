"""``fedspan describe``: look at a study's data before anything is learned, and leave one page."""

from __future__ import annotations

from pathlib import Path

from fedspan.cli.console import print_line
from fedspan.cli.study.study_file import DescribePlan, read_description
from fedspan.cli.study.study_tables import SiteTable, read_tables, words_in_words
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.progress import ProgressBar
from fedspan.report.overview_page import write_overview
from fedspan.statistics.describe.table_overview import Overview, overview

_MOST_LINES = 60


def describe_study(study: Path, out: Path | None, kit: Path | None, by: str | None) -> int:
    """Describe the tables of a study here, or those of the sites of a kit's federation, and write the page."""
    plan = read_description(study, at_sites=kit is not None)
    page = out or study.with_suffix(".describe.html")
    if not page.parent.is_dir():
        raise InputError(f"{page} can't be written: its folder does not exist; choose another file with --out")
    tables = [] if kit is not None else read_tables(plan.data, text=True)
    for line in words_in_words(tables):
        print_line(line)
    with _opened(plan, tables, kit) as fed:
        fed.observe(ProgressBar())
        found = overview(fed, by if by is not None else plan.by, **plan.settings)
    _print(found)
    settings = {"study": str(study), "seed": str(plan.seed), "by": found.description.by or "no groups"}
    print_line(f"page: {write_overview(page, found, title=f'{study.stem}: a first look', settings=settings)}")
    return 0


def _opened(plan: DescribePlan, tables: list[SiteTable], kit: Path | None) -> Federation:
    if kit is not None:
        from fedspan.engines.nvflare.client.connect import connect

        return connect(kit, seed=plan.seed, policy=plan.policy)
    return LocalFederation([table.site() for table in tables], seed=plan.seed, policy=plan.policy)


def _shown(value: float) -> str:
    return f"{value:.6g}"


def _print(found: Overview) -> None:
    """Print the table of columns, and which sites differ."""
    print(found.description.to_frame().to_string(na_rep="", float_format=_shown, max_rows=_MOST_LINES))
    if found.differences is not None:
        differing = found.differences.differing()
        for site, columns in differing.items():
            print_line(f"site {site} differs from the rest in {', '.join(columns[:8])}")
        if not differing:
            print_line("no site differs from the rest")
