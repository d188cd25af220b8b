"""The head of the page, and the sections on requests, sites, endings and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedspan.federation.outcomes import EndingKind, FailureKind
from fedspan.federation.record import RunRecord
from fedspan.report.markup import (
    MOST_RUNS,
    MOST_SITES,
    Html,
    PageSection,
    count,
    duration,
    esc,
    few,
    header,
    join,
    more,
    note,
    pairs,
    panel,
    plural,
    section,
    size,
    table,
)
from fedspan.report.sections.call_totals import Totals, by_site, by_step, round_index, run_names
from fedspan.report.sections.rerun import described

MOST_REASONS = 20
#: Distinct texts of one kind of failure that are shown.
MOST_OF_A_KIND = 3
_CONTINUE = "run it again with the same run_dir, or the study with --resume, to continue"

Sites = Mapping[str, Mapping[str, Any]] | None


def run_header(title: str, records: Sequence[RunRecord], sites: Sites) -> Html:
    """Return the head of the page: what ran, its result in one line, and the few numbers that matter."""
    total = Totals.all(by_step(records).values())
    names = set(sites or ()).union(*(record.sites for record in records))
    tiles = [("sites", count(len(names)))]
    tiles += [("rows", count(_rows(sites, sites)))] if sites else []
    tiles += [
        ("calls", count(total.calls)),
        ("bytes up", size(total.up)),
        ("bytes down", size(total.down)),
        ("time in calls", duration(total.seconds)),
        ("failed replies", count(total.failed)),
    ]
    result = "No run was recorded."
    if records:
        runs = run_names(records)
        what = ", then ".join(runs) if len(runs) <= 4 else f"{count(len(runs))} runs, the last of them {runs[-1]}"
        replies = f"{count(total.answered)} of {count(total.requested)} replies came back"
        replies = replies if total.requested else "no site was called"
        result = f"{what}: {replies}; {ending(records[-1])[1]}."
    return header(title, result, tiles, bad="failed replies" if total.failed else "")


def requested_section(records: Sequence[RunRecord], settings: Mapping[str, object] | None) -> PageSection:
    """Return what was requested: the caller's own settings, and the parameters and seed of every run."""
    panels = [panel("Settings", pairs(settings.items()))] if settings else []
    for name, record in list(zip(run_names(records), records, strict=True))[:MOST_RUNS]:
        values = [("seed", str(record.seed)), *((key, described(value)) for key, value in record.settings.items())]
        panels.append(panel(name, pairs(values)))
    body = Html(f'<div class="panels">{join(panels)}</div>')
    return section("requested", "Requested", body, *more(len(records) - MOST_RUNS, "run"))


def sites_section(records: Sequence[RunRecord], sites: Sites) -> PageSection:
    """Return the table of sites: the size of their data, their replies and their bytes."""
    sites = sites or {}
    totals = by_site(records, sites)
    names = list(totals)
    if not names:
        return section("sites", "Sites", lead="There was no site.")

    def line(name: object, total: Totals, rows: object, columns: object) -> list[object]:
        failed = Html(f'<span class="bad">{count(total.failed)}</span>') if total.failed else total.failed
        data = [rows, columns] if sites else []
        return [name, *data, f"{count(total.answered)} of {count(total.requested)}", failed, total.up, total.down]

    hidden = names[MOST_SITES:]
    body = [
        line(esc(name, 80), totals[name], *(sites.get(name, {}).get(key, "–") for key in ("rows", "columns")))
        for name in names[:MOST_SITES]
    ]
    if hidden:
        rest = Totals.all(totals[name] for name in hidden)
        body.append(line(f"and {plural(len(hidden), 'more site')}", rest, _rows(sites, hidden), ""))
    foot = line("all", Totals.all(totals.values()), _rows(sites, names), "")
    called = [total for total in totals.values() if total.requested]
    silent = sum(not total.answered for total in called)
    state = "; none was called." if not called else "; each one that was called answered at least once."
    state = f"; {count(silent)} of those called never answered." if silent else state
    head = ["site", *(["rows", "columns"] if sites else []), "answered", "failed", "bytes up", "bytes down"]
    return section("sites", "Sites", table(head, body, foot=foot), lead=plural(len(names), "site") + state)


def _rows(sites: Sites, names: Iterable[str] | None) -> int:
    return sum(int((sites or {}).get(name, {}).get("rows", 0)) for name in names or ())


def ending(record: RunRecord) -> tuple[str, str]:
    """Return whether a run ended well (``"good"``), badly (``"bad"``) or not at all (``"open"``), and how, in words."""
    ended = record.stopped
    if ended.kind is EndingKind.RUNNING:
        return "open", "not ended: still running, or it was killed"
    bad = ended.kind in (EndingKind.FAILED, EndingKind.INTERRUPTED)
    return ("bad" if bad else "good"), ended.strip().rstrip(".:")  # an error may have no words


def stopped_section(records: Sequence[RunRecord]) -> PageSection:
    """Return why each run stopped; of one that can be continued, also how far it came and how to do so."""
    lines = []
    for name, record in list(zip(run_names(records), records, strict=True))[-MOST_RUNS:]:
        rounds = round_index(record).total
        after = f"after {plural(len(record.calls), 'call')}" + (f" in {plural(rounds, 'round')}" if rounds else "")
        state, why = ending(record)
        if record.stopped.kind in (EndingKind.RUNNING, EndingKind.INTERRUPTED):
            last = record.calls[-1] if record.calls else None
            at = "" if last is None or last.round is None else f" in round {last.round}"
            made = f"the last call was {last.number}, {last.step}{at}" if last else "no call was made"
            why = f"{why}; {made}; {_CONTINUE}"
        words = f"<b>{esc(name)}</b> <span>{esc(why, 1000)}</span> <small>{esc(after)}</small>"
        lines.append(Html(f'<li class="{state}">{words}</li>'))
    body = Html(f'<ul class="stopped">{join(lines)}</ul>') if lines else note("No run was recorded.")
    return section("stopped", "Why it stopped", body, *more(len(records) - MOST_RUNS, "run", " before"))


def reasons_of(records: Iterable[RunRecord]) -> dict[str, list[tuple[str, str]]]:
    """Return the site and the step of every failure by its text, the most frequent first.

    Of one kind only the first texts are kept apart.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    kinds: Counter[FailureKind] = Counter()
    for call in (call for record in records for call in record.calls):
        for site, failure in call.failed.items():
            text = str(failure)
            if text not in found and kinds[failure.kind] >= MOST_OF_A_KIND:
                text = f"{failure.kind}, for other reasons"
            kinds[failure.kind] += text not in found
            found.setdefault(text, []).append((site, call.step))
    return dict(sorted(found.items(), key=lambda reason: -len(reason[1])))


def failures_section(records: Sequence[RunRecord]) -> PageSection:
    """Return the reasons of failures, the most frequent first, with their sites and steps."""
    reasons = reasons_of(records)
    if not reasons:
        called = any(call.asked for record in records for call in record.calls)
        lead = "Every site that was called gave a usable reply." if called else "No site was called."
        return section("failures", "Failures", lead=lead)
    rows = [
        [text, few(site for site, _ in where), few(step for _, step in where), len(where)]
        for text, where in list(reasons.items())[:MOST_REASONS]
    ]
    counts = [len(where) for where in reasons.values()]
    replies = plural(sum(counts[MOST_REASONS:]), "failed reply", "failed replies")
    rest = more(len(reasons) - MOST_REASONS, "reason", f" for {replies}")
    rest += [note(sentence) for record in records for sentence in record.absences]
    listed = table(["reason", "sites", "steps", "times"], rows, texts=3)
    return section(
        "failures", "Failures", listed, join(rest), lead=f"{plural(sum(counts), 'failed reply', 'failed replies')}."
    )
