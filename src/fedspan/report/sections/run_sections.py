"""The sections on who and why: what was asked, the sites, why the runs stopped, the failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedspan.federation.record import RunRecord
from fedspan.report.markup import (
    Html,
    count,
    duration,
    esc,
    few,
    join,
    note,
    pairs,
    panel,
    plural,
    section,
    size,
    table,
)
from fedspan.report.sections.call_totals import SiteTotals, by_reason, by_site, run_names
from fedspan.report.sections.ending import ending, ending_with_advice
from fedspan.report.sections.rounds import turns

MOST_SITES = 30
MOST_RUNS = 12
MOST_REASONS = 20


def header(title: str, records: Sequence[RunRecord], sites: Mapping[str, Mapping[str, Any]] | None) -> Html:
    """Return the head of the page: what was run, its result in one line, and the few numbers that matter."""
    names = set(sites or ()).union(*(record.sites for record in records))
    failed = sum(len(call.failed) for record in records for call in record.calls)
    tiles = [("sites", count(len(names)))]
    if sites:
        tiles.append(("rows", count(sum(int(site.get("rows", 0)) for site in sites.values()))))
    tiles += [
        ("calls", count(sum(len(record.calls) for record in records))),
        ("bytes up", size(sum(record.bytes_up for record in records))),
        ("bytes down", size(sum(record.bytes_down for record in records))),
        ("time in calls", duration(sum(record.seconds for record in records))),
        ("failed replies", count(failed)),
    ]
    bad = ' class="bad"' if failed else ""
    shown = join(
        Html(f"<div{bad if name == 'failed replies' else ''}><dt>{name}</dt><dd>{esc(value)}</dd></div>")
        for name, value in tiles
    )
    said = Html(f'<h1>{esc(title)}</h1><p class="result">{esc(_result(records))}</p>')
    return Html(f'<header>{said}<dl class="tiles">{shown}</dl></header>')


def _result(records: Sequence[RunRecord]) -> str:
    if not records:
        return "No run was recorded."
    names = run_names(records)
    what = ", then ".join(names) if len(names) <= 4 else f"{count(len(names))} runs, the last of them {names[-1]}"
    asked = sum(len(call.asked) for record in records for call in record.calls)
    answered = sum(len(call.answered) for record in records for call in record.calls)
    replies = f"{count(answered)} of {count(asked)} replies came back" if asked else "no site was asked"
    return f"{what}: {replies}; {ending(records[-1])[1]}."


def asked_section(records: Sequence[RunRecord], settings: Mapping[str, object] | None) -> Html:
    """Return what was asked: the caller's own settings, and the parameters and seed of every run."""
    panels = [panel("Settings", pairs(settings.items()))] if settings else []
    for name, record in list(zip(run_names(records), records, strict=True))[:MOST_RUNS]:
        panels.append(panel(name, pairs([("seed", str(record.seed)), *record.settings.items()])))
    hidden = len(records) - MOST_RUNS
    rest = note(f"and {plural(hidden, 'more run')}") if hidden > 0 else Html("")
    return section("asked", "What was asked", Html(f'<div class="panels">{join(panels)}</div>'), rest)


def sites_section(records: Sequence[RunRecord], sites: Mapping[str, Mapping[str, Any]] | None) -> Html:
    """Return the table of sites: their data's size, what they answered, what travelled."""
    sites = sites or {}
    totals = by_site(records, sites)
    names = list(totals)
    head = ["site", *(["rows", "columns"] if sites else []), "answered", "failed", "bytes up", "bytes down"]

    def line(name: object, total: SiteTotals, rows: object, columns: object) -> list[object]:
        failed = Html(f'<span class="bad">{count(total.failed)}</span>') if total.failed else total.failed
        data = [rows, columns] if sites else []
        return [name, *data, f"{count(total.answered)} of {count(total.asked)}", failed, total.up, total.down]

    def rows_of(some: Iterable[str]) -> int:
        return sum(int(sites[name].get("rows", 0)) for name in some if name in sites)

    shown, hidden = names[:MOST_SITES], names[MOST_SITES:]
    body = [
        line(esc(n, 80), totals[n], *(sites.get(n, {}).get(key, "–") for key in ("rows", "columns"))) for n in shown
    ]
    if hidden:
        body.append(line(f"and {plural(len(hidden), 'more site')}", _sum(totals, hidden), rows_of(hidden), ""))
    foot = line("all", _sum(totals, names), rows_of(names), "")
    silent = [name for name, total in totals.items() if total.asked and not total.answered]
    lead = plural(len(names), "site") if names else "No site was there to be asked."
    if names and not silent:
        asked = any(total.asked for total in totals.values())
        lead += "; each of those asked answered at least once." if asked else "; none was asked."
    elif silent:
        lead += f"; {count(len(silent))} of those asked never answered."
    return section("sites", "Who took part", *([table(head, body, foot=foot)] if names else []), lead=lead)


def _sum(totals: Mapping[str, SiteTotals], names: Iterable[str]) -> SiteTotals:
    total = SiteTotals()
    for name in names:
        total += totals[name]
    return total


def stopped_section(records: Sequence[RunRecord]) -> Html:
    """Return why each run stopped, in its own words."""
    lines = []
    for name, record in list(zip(run_names(records), records, strict=True))[-MOST_RUNS:]:
        rounds = turns(record).asked
        after = f"after {plural(len(record.calls), 'call')}" + (f" in {plural(rounds, 'round')}" if rounds else "")
        kind, why = ending_with_advice(record)
        lines.append(
            Html(
                f'<li class="{kind}"><b>{esc(name)}</b> <span>{esc(why, 1000)}</span> <small>{esc(after)}</small></li>'
            )
        )
    hidden = len(records) - MOST_RUNS
    rest = note(f"{plural(hidden, 'earlier run')} not shown") if hidden > 0 else Html("")
    body = Html(f'<ul class="stopped">{join(lines)}</ul>') if lines else note("No run was recorded.")
    return section("stopped", "Why it stopped", body, rest)


def failures_section(records: Sequence[RunRecord]) -> Html:
    """Return the reasons of failures, the most frequent first, with who gave them and where."""
    reasons = by_reason(records)
    if not reasons:
        asked = any(call.asked for record in records for call in record.calls)
        lead = "Every site that was asked gave a usable reply." if asked else "No site was asked."
        return section("failures", "Failures", lead=lead)
    rows = [
        [r.text, few(r.sites), few(step.rpartition(".")[2] for step in r.steps), r.count]
        for r in reasons[:MOST_REASONS]
    ]
    hidden = reasons[MOST_REASONS:]
    rest = Html("")
    if hidden:
        rest = note(
            f"and {plural(len(hidden), 'other reason')} for {count(sum(r.count for r in hidden))} failed replies"
        )
    lead = (
        f"{plural(sum(r.count for r in reasons), 'failed reply', 'failed replies')}. "
        "Reasons that differ in numbers or the step's name alone are counted as one and shown as they first came."
    )
    for sentence in (sentence for record in records for sentence in record.absences):
        rest = join([rest, note(sentence)])
    return section("failures", "Failures", table(["reason", "sites", "steps", "times"], rows, texts=3), rest, lead=lead)
