"""The section on running it again: the exact versions, processor and threads, and the study or the Python lines."""

from __future__ import annotations

from collections.abc import Sequence

from fedspan.federation.record import RunRecord
from fedspan.federation.versions import versions
from fedspan.report.markup import Html, esc, join, note, pairs, panel, section
from fedspan.report.sections.call_totals import run_names
from fedspan.report.sections.python_lines import python_lines

_LONGEST = 50_000


def again_section(records: Sequence[RunRecord], study: str | None = None) -> Html:
    """Return what is needed to run it again: versions at the time of the run, and the `study` or lines of Python."""
    panels = []
    for told in {tuple(record.versions.items()) for record in records if record.versions}:
        who = [n for n, r in zip(run_names(records), records, strict=True) if tuple(r.versions.items()) == told]
        whose = "" if len(who) == len(records) else f" of {', '.join(who[:4])}{' and more' if len(who) > 4 else ''}"
        panels.append((who, panel(f"Versions{whose} at the coordinator", pairs(told))))
    shown = [drawn for _, drawn in sorted(panels, key=lambda found: found[0])]
    silent = [name for name, record in zip(run_names(records), records, strict=True) if not record.versions]
    if silent or not records:
        shown.append(panel("Versions where this report was written", pairs(versions().items())))
    remark = note(f"The record of {', '.join(silent[:4])} has no versions of its time.") if silent else Html("")
    if study is not None:
        lines = panel("The study file: fedspan run STUDY.toml", _code(study))
    else:
        lines = panel("In Python", _code(python_lines(records))) if records else Html("")
    lead = (
        "The same versions, rows, settings and seed give the same result; on the same kind of processor and with the "
        "same number of BLAS threads to the last bit."
    )
    body = Html(f'<div class="again"><div>{lines}</div><div>{join(shown)}{remark}</div></div>')
    return section("again", "Run it again", body, lead=lead)


def _code(text: str) -> Html:
    return Html(f'<pre tabindex="0">{esc(text.strip(), _LONGEST)}</pre>')
