"""The overview page of a table: columns, distributions, gaps, correlations, groups, and which site differs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedspan.report.charts.bars_and_cells import heat_map, row_bars
from fedspan.report.charts.count_bars import count_bars
from fedspan.report.charts.svg import LETTER, WIDTH, charts, figure
from fedspan.report.markup import (
    Html,
    PageSection,
    count,
    few,
    header,
    join,
    more,
    note,
    number,
    pairs,
    panel,
    percent,
    plural,
    section,
    size,
    table,
)
from fedspan.report.page import write_page
from fedspan.report.sections.privacy_section import privacy_section
from fedspan.report.sections.run_sections import failures_section
from fedspan.statistics.describe.description import MISSING, OTHER, Description
from fedspan.statistics.describe.site_differences import SiteDifferences
from fedspan.statistics.describe.table_overview import Overview

MOST_PICTURES, MOST_NAMES, MOST_PAIRS, MOST_TESTS = 24, 8, 16, 20
_LEVEL = 0.05
_SUPPRESSED = "–"


def write_overview(
    path: str | os.PathLike[str], found: Overview, *, title: str, settings: Mapping[str, object] | None = None
) -> Path:
    """Write the overview of a table as one HTML file that opens offline, readable by its owner alone (mode 0600)."""
    path = Path(path)
    seen = found.description
    parts = [_columns(seen), _distributions(found)]
    parts += [part for part in (_gaps(seen), _correlations(found), _groups(seen), _sites(found)) if part is not None]
    record = found.run_
    parts += [failures_section([record]), privacy_section([record])]
    settings_panel = [panel("Settings", pairs(settings.items()))] if settings else []
    navigation = Html(f'<nav aria-label="Sections">{join(part.link for part in parts)}</nav>')
    head = header(title, _result(found), _tiles(found))
    small = note(
        f"Counts of fewer than {seen.least_set} rows are suppressed ({_SUPPRESSED}), with as many others as keep them "
        "from being computed. Numbers are exact for the rows of all sites.",
        400,
    )
    write_page(path, title, join([head, navigation, small, *parts, *settings_panel], "\n"))
    return path


def _tiles(found: Overview) -> list[tuple[str, str]]:
    seen, record = found.description, found.run_
    cells = np.nansum(seen.count[0]) + np.nansum(seen.missing[0])
    return [
        ("rows", _count(seen.rows[0])),
        ("columns", count(len(seen.columns))),
        ("sites", count(len(seen.sites))),
        ("missing cells", percent(np.nansum(seen.missing[0]) / cells) if cells else _SUPPRESSED),
        ("calls", count(len(record.calls))),
        ("bytes up", size(record.bytes_up)),
    ]


def _result(found: Overview) -> str:
    seen = found.description
    what = f"{plural(len(seen.columns), 'column')} at {plural(len(seen.sites), 'site')}"
    if found.differences is None:
        return f"{what}, described without moving a row."
    differing = found.differences.differing(_LEVEL)
    if not differing:
        return f"{what}, described without moving a row. No site differs from the rest."
    sites = few([f"{site} ({few(columns, 2)})" for site, columns in differing.items()], 3)
    return f"{what}, described without moving a row. Sites that differ from the rest: {sites}."


def _columns(seen: Description) -> PageSection:
    """Return the tables of columns: of numbers, and of text."""
    numbers = [j for j, kind in enumerate(seen.kinds) if kind == "number"]
    head = ["column", "count", "missing", "mean", "deviation", "min"]
    head += [f"{100 * level:g} %" for level in seen.levels] + ["max"]
    lines = [
        [
            seen.columns[j],
            _count(seen.count[0, j]),
            _count(seen.missing[0, j]),
            _number(seen.mean[0, j], _digits(seen, j)),
            _number(seen.std[0, j]),
            *(_number(values[0, j], _digits(seen, j)) for values in (seen.min, *seen.quantiles, seen.max)),
        ]
        for j in numbers
    ]
    texts = [
        [
            name,
            _count(seen.count[0, j]),
            _count(seen.missing[0, j]),
            _count(seen.unique[j]),
            *_most_frequent(seen, name),
        ]
        for j, name in enumerate(seen.columns)
        if seen.kinds[j] == "text"
    ]
    body = [table(head, lines)] if lines else []
    body += [table(["column of text", "count", "missing", "names", "most frequent", "rows"], texts)] if texts else []
    rows = "" if not seen.by else f" Of the rows that have a group ({seen.by})."
    return section("columns", "Columns", *body, lead=f"What pandas' describe gives for the pooled rows.{rows}")


def _most_frequent(seen: Description, column: str) -> list[str]:
    found = seen.categories.get(column)
    if found is None or not np.any(found.counts[0, :-2] > 0):
        return [_SUPPRESSED, _SUPPRESSED]
    best = int(np.nanargmax(found.counts[0, :-2]))
    return [found.names[best], _count(found.counts[0, best])]


def _distributions(found: Overview) -> PageSection:
    figures = [
        figure(
            one.column,
            count_bars(
                one.edges,
                one.counts[0],
                (float(one.below[0]), float(one.above[0])),
                label=f"histogram of {one.column}",
                x_label="",
            ),
        )
        for one in found.histograms[:MOST_PICTURES]
        if one.edges[-1] > one.edges[0] and not np.all(one.counts[0] == 0)
    ]
    for name, names in list(found.description.categories.items())[:MOST_PICTURES]:
        counts = dict(zip((*names.names, OTHER, MISSING), names.counts[0], strict=True))
        kept = sorted(((text, n) for text, n in counts.items() if n > 0), key=lambda pair: -pair[1])[:MOST_NAMES]
        if kept:
            bars = row_bars(
                [text for text, _ in kept],
                [[float(n)] for _, n in kept],
                label=f"names of {name}",
                show=lambda value: count(round(value)),
            )
            figures.append(figure(name, bars))
    lead = "Grey bars are the values beyond the edges, orange dashes are suppressed counts."
    hidden = len(found.histograms) + len(found.description.categories) - len(figures)
    return section(
        "distributions", "Distributions", charts(figures), *more(hidden, "column", " without a picture"), lead=lead
    )


def _gaps(seen: Description) -> PageSection | None:
    """Return the shares of missing cells, of the columns that have any."""
    total = seen.count[0] + seen.missing[0]
    shares = {
        name: missing / all_cells
        for name, missing, all_cells in zip(seen.columns, seen.missing[0], total, strict=True)
        if missing > 0 and all_cells > 0
    }
    if not shares:
        return None
    order = sorted(shares, key=lambda name: -shares[name])[:MOST_PICTURES]
    bars = row_bars(order, [[shares[name]] for name in order], label="missing cells", show=percent, colours=(6,))
    return section("missing", "Missing cells", charts([figure("Share of the rows", bars)]))


def _correlations(found: Overview) -> PageSection | None:
    pairs_of = found.correlation
    if pairs_of is None or len(pairs_of.columns) < 2:
        return None
    names = [_cut(name, 16) for name in pairs_of.columns[:MOST_PAIRS]]
    values = pairs_of.values[:MOST_PAIRS, :MOST_PAIRS]
    room = int((WIDTH - LETTER * max(map(len, names)) - 12) / len(names) / LETTER)
    picture = heat_map(values, names, [_cut(name, max(1, room)) for name in names], label="correlations", deepest=1.0)
    hidden = more(len(pairs_of.columns) - MOST_PAIRS, "column")
    lead = "Pearson's, of each pair of columns over the rows in which both have a value. Blue is positive."
    return section("correlations", "Correlations", charts([figure("Columns of numbers", picture)]), *hidden, lead=lead)


def _groups(seen: Description) -> PageSection | None:
    """Return the table of groups."""
    if not seen.by:
        return None
    frame = seen.table_one()
    frame = frame.drop(columns=frame.columns[-3])  # the names of the tests
    head = ["", "", *frame.columns]
    lines = []
    before = ""
    for (column, of), row in zip(frame.index, frame.to_numpy().tolist(), strict=True):
        cells = (_SUPPRESSED if cell == "" and k <= len(seen.groups) else cell for k, cell in enumerate(row))
        lines.append([column if column != before else "", of, *cells])
        before = column
    lead = (
        f"By {seen.by}. Tests: of means (Welch's t, or analysis of variance) and of ranks (Wilcoxon, or Kruskal and "
        "Wallis), or chi-square. SMD is the largest standardised difference between two groups."
    )
    return section("groups", "Groups", table(head, lines, texts=2), lead=lead)


def _sites(found: Overview) -> PageSection | None:
    if found.differences is None:
        return None
    tests = [test for test in found.differences.tests if test.corrected < _LEVEL]
    body = []
    picture = _effects(found.differences)
    body += [charts([figure("Standardised mean difference from the rest", picture)])] if picture else []
    rows = [
        [test.site, test.column or "all numbers", test.of, _number(test.effect, 3), _p(test.p), _p(test.corrected)]
        for test in tests[:MOST_TESTS]
    ]
    if rows:
        body.append(table(["site", "column", "of", "effect", "p", "p, corrected"], rows, texts=3))
    body += more(len(tests) - MOST_TESTS, "test")
    made = len(found.differences.tests)
    lead = f"Each site against the rest: {plural(len(tests), 'test')} of {count(made)} below {_LEVEL} after correction."
    left_out = found.differences.not_compared
    lead += f" {plural(left_out, 'site')} left out, because counts of few rows would show." if left_out else ""
    return section("sites", "Which site differs", *body, lead=lead)


def _effects(found: SiteDifferences) -> Html | None:
    """Draw the standardised mean differences by column and site."""
    effects = {(test.column, test.site): test.effect for test in found.tests if test.of == "mean"}
    columns = list(dict.fromkeys(sorted(column for column, _ in effects)))[:MOST_PAIRS]
    sites = [site for site in found.sites if any(one == site for _, one in effects)][:MOST_PAIRS]
    if not columns or not sites:
        return None
    values = np.array([[effects.get((column, site), math.nan) for site in sites] for column in columns])
    names = [_cut(column, 16) for column in columns]
    room = int((WIDTH - LETTER * max(map(len, names)) - 12) / len(sites) / LETTER)
    return heat_map(values, names, [_cut(site, max(1, room)) for site in sites], label="effects", deepest=1.0)


def _digits(seen: Description, j: int) -> int:
    """Return the number of digits that shows differences of a hundredth of the deviation."""
    size, spread = abs(float(seen.mean[0, j])), float(seen.std[0, j])
    if not (size > 0 and spread > 0 and math.isfinite(size / spread)):
        return 4
    return min(12, max(4, 3 + math.ceil(math.log10(size / spread))))


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: max(1, most - 1)] + "…"


def _count(value: float) -> str:
    return _SUPPRESSED if math.isnan(value) else count(round(value))


def _number(value: float, digits: int = 4) -> str:
    return _SUPPRESSED if math.isnan(value) else number(float(value), digits)


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else number(value, 2)
