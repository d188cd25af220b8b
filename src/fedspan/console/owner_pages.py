"""The pages of a site's owner: studies, data and rules, log, budget. Every change is one of the owner's decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fedspan.console.page_layout import button, form, text_field, whole_page
from fedspan.console.page_server import Answer, Pages, Visit
from fedspan.console.prometheus import site_metrics
from fedspan.console.site_view import RunView, SiteView
from fedspan.console.study_words import REVEALS, computes, decision_words, step_words, worst
from fedspan.errors import InputError
from fedspan.owner.decisions import ALWAYS, DECISIONS, ONCE, REFUSED, Proposal
from fedspan.owner.study_plan import PlannedRun
from fedspan.privacy import Ledger
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.markup import (
    Html,
    count,
    esc,
    header,
    join,
    more,
    note,
    number,
    pairs,
    plural,
    section,
    size,
    table,
)

LINKS = {"/": "Studies", "/data": "Data and rules", "/log": "Log", "/budget": "Budget"}
#: Lines of the log, and earlier studies and runs, that a page lists.
MOST_LINES, MOST_EARLIER = 200, 20
#: Seconds after which the page loads itself again, while no decision is due.
RELOAD = 10


class OwnerPages:
    """Makes the pages of one site."""

    def __init__(self, view: SiteView) -> None:
        self._view = view

    def pages(self) -> Pages:
        """Return what a server needs."""
        shows = {"/": self.studies, "/data": self.data, "/log": self.log, "/log.jsonl": self.export}
        changes = {"/decide": self.decide, "/stop": self.stop, "/pause": self.pause, "/resume": self.resume}
        return Pages({**shows, "/budget": self.budget}, changes, lambda: site_metrics(self._fresh()))

    # What changes something.

    def decide(self, visit: Visit) -> Answer:
        """Approve a study once or for good, or refuse it with a reason."""
        decision, why = visit.values.get("decision", ""), visit.values.get("why", "").strip()
        if decision not in DECISIONS:
            raise InputError("A decision is to approve once, to approve as long as nothing changes, or to refuse.")
        if decision == REFUSED and not why:
            raise InputError("Please give a reason: the user reads it. Go back and write one.")
        self._view.decisions.decide(visit.values.get("ticket", ""), decision, why, "page")
        return _back()

    def stop(self, visit: Visit) -> Answer:
        """Stop a run."""
        run = visit.values.get("run", "")
        if run not in self._fresh().runs:
            raise InputError("There is no such run.")
        self._view.decisions.stop(run, visit.values.get("why", "").strip(), "page")
        return _back()

    def pause(self, visit: Visit) -> Answer:
        """Answer nothing for a while."""
        self._view.decisions.pause(visit.values.get("why", "").strip(), "page")
        return _back()

    def resume(self, visit: Visit) -> Answer:
        """Let the site answer requests again."""
        self._view.decisions.resume("page")
        return _back()

    # What shows something.

    def studies(self, visit: Visit) -> Answer:
        """Show what waits for a decision, what runs, and what was decided."""
        view, token = self._fresh(), visit.form_token
        waiting, running = view.waiting, view.running
        proposals = [one for one in view.decisions.proposals.values() if one.state != "waiting"][::-1]
        required = "Nothing runs before you approve it." if view.rules.approval else _NOT_REQUIRED
        parts = [
            section(
                "waiting",
                "Studies waiting for your approval",
                *(self._study(one, token) for one in waiting),
                *([] if waiting else [note("None.")]),
                lead=required,
            ),
            section(
                "running",
                "Running studies",
                *(self._run(one, token) for one in running[:MOST_EARLIER]),
                *([] if running else [note("None.")]),
                *more(len(running) - MOST_EARLIER, "run"),
            ),
            *(
                [_interrupted(self._run(one, token) for one in view.interrupted[:MOST_EARLIER])]
                if view.interrupted
                else []
            ),
            section("pause", "Pause this site", self._pause(token)),
            section("decided", "Your decisions", *self._decided(proposals, token)),
            section("earlier", "Earlier runs", *self._earlier()),
        ]
        return self._page(visit, parts, reload=0 if waiting or running else RELOAD)

    def data(self, visit: Visit) -> Answer:
        """Show the data as the federation sees them, and the rules."""
        view = self._fresh()
        about, file = view.about(), view.file
        uses = {about.get("label"): "label, not learned from", about.get("task"): "task"}
        target = about.get("target")
        uses |= dict.fromkeys(target if isinstance(target, list) else [target], "target")
        schema = (None if view.kit is None else view.kit.schema) or file.schema or {}
        rows = [
            [name, kind, uses.get(name, ""), schema.get(name, "–")] for name, kind in about.get("columns", {}).items()
        ]
        rows += [[name, "–", use, schema.get(name, "–")] for name, use in uses.items() if name is not None]
        where = file.data.source.label + ("" if file.data.where is None else f", where {file.data.where.text}")
        facts = [("from", where), ("rows", count(about["rows"]) if "rows" in about else "not read yet")]
        listed = (
            table(["column", "kind", "use", "schema"], rows, texts=4) if rows else note("The site has not started.")
        )
        lead = "Names, kinds and the number of rows are what users learn. No value is shown here or there."
        parts = [
            section("data", "Your data as the federation sees them", pairs(facts), listed, lead=lead),
            section(
                "rules",
                "Your rules",
                pairs(file.rules.in_words().items()),
                lead=f"They are in {file.path.name}, and count at once.",
            ),
        ]
        return self._page(visit, parts)

    def log(self, visit: Visit) -> Answer:
        """Show the audit log, or the lines that hold some words."""
        view, words = self._fresh(), visit.values.get("search", "").strip()
        found = _matching(view.lines, words)
        rows = [
            [
                line["when"][:19].replace("T", " "),
                line["who"] or "(unknown)",
                line["step"] or line["how"],
                line["outcome"] + (f": {line['why']}" if line["why"] else ""),
                size(line["bytes"]),
            ]
            for line in found[::-1][:MOST_LINES]
        ]
        search = Html(
            f'<form method="get" action="/log" role="search"><label>Search for a user, a step, a run, a reason'
            f'<input type="search" name="search" value="{esc(words)}"></label>{button("Search")}</form>'
        )
        query = f"?search={_quoted(words)}" if words else ""
        export = Html(f'<p><a id="export" href="/log.jsonl{esc(query)}" download>Export these lines</a></p>')
        listed = table(["time (UTC)", "user", "step", "outcome", "left the site"], rows, texts=4)
        parts = [
            section(
                "log",
                "Audit log",
                search,
                export,
                listed if rows else note("No lines."),
                *more(len(found) - len(rows), "line", ", in the export"),
                lead=f"{plural(len(found), 'line')}, each written before the answer left. There are no data in them.",
            )
        ]
        return self._page(visit, parts)

    def export(self, visit: Visit) -> Answer:
        """Return the log, or the lines that hold some words, as JSON Lines."""
        found = _matching(self._fresh().lines, visit.values.get("search", "").strip())
        body = "".join(json.dumps(line) + "\n" for line in found).encode()
        return Answer(body, "application/jsonl; charset=utf-8", name=f"audit-{self._view.file.name}.jsonl")

    def budget(self, visit: Visit) -> Answer:
        """Show what the privacy budget was spent on."""
        view = self._fresh()
        ledger = view.ledger()
        if ledger is None:
            text = "This site has no privacy budget: what needs noise of its own is refused."
            return self._page(visit, [section("budget", "Privacy budget", note(text))])
        return self._page(visit, [_budget_section(ledger)])

    # The parts.

    def _study(self, study: Proposal, token: str) -> Html:
        plan = study.plan
        runs = join(self._planned(run) for run in plan.runs)
        most = worst(plan)
        facts = [
            ("who", f"{study.who}, on {_time(study.when)}"),
            ("in the user's words", plan.title or "–"),
            ("leaves the site", Html(f'<span class="flag {_flag(most)}">{esc(REVEALS[most])}</span>')),
            (
                "how often",
                f"at most {plural(sum(run.calls for run in plan.runs), 'call')}, in {plural(len(plan.runs), 'run')}",
            ),
            (
                "privacy cost, as the user states it",
                "; ".join(run.privacy for run in plan.runs if run.privacy) or "no noise: no budget is spent",
            ),
            ("approval covers", f"the study {plan.digest[:12]}: these steps, parameters and numbers of calls"),
        ]
        parts = [
            text_field("why", "Reason (needed to refuse; the user reads it)"),
            button("Approve once", "", ONCE),
            button("Approve as long as nothing changes", "quiet", ALWAYS),
            button("Refuse", "bad", REFUSED),
        ]
        return Html(
            f'<article class="study" id="study-{esc(study.ticket)}"><h3>{esc(_whats(plan.runs))}</h3>{_facts(facts)}'
            f"{runs}{form('/decide', token, parts, ticket=study.ticket)}</article>"
        )

    def _planned(self, run: PlannedRun) -> Html:
        rows = []
        for step in run.steps:
            words = step_words(step, self._view.rules)
            flag = Html(f'<span class="flag {_flag(words.reveals)}">{esc(REVEALS[words.reveals])}</span>')
            against = Html(f'<br><span class="bad">{esc(words.against)}</span>') if words.against else Html("")
            fixed = " · ".join(filter(None, (words.step, words.fixed)))
            what = Html(f"{esc(words.leaves)}{against}<br><span class=soft>{_whole(fixed)}</span>")
            rows.append([what, flag, words.seen, words.calls])
        settings = f" with {run.settings}" if run.settings else ""
        listed = table(["what leaves the site", "reveals", "who sees it", "calls at most"], rows, texts=3)
        named = f"The user calls it <b>{esc(run.what)}</b>{esc(settings, 600)}"
        return Html(f"<p>{named}. {esc(computes(run))}</p>{listed}")

    def _run(self, run: RunView, token: str) -> Html:
        most = run.most_calls
        progress = f"{count(run.calls)} of at most {count(most)} calls" if most else plural(run.calls, "call")
        facts = [
            ("who", run.who),
            ("began", _time(run.began)),
            ("last request", _time(run.last)),
            ("so far", f"{progress}, {size(run.bytes)} left the site"),
            ("steps", ", ".join(f"{step} ({times})" for step, times in run.steps.most_common(8)) or "–"),
        ]
        parts = [text_field("why", "Reason (the user reads it)"), button("Stop this run", "bad")]
        return Html(
            f'<article class="study run"><h3>{esc(run.what)}</h3>{_facts(facts)}'
            f"{form('/stop', token, parts, run=run.run)}</article>"
        )

    def _pause(self, token: str) -> Html:
        if self._view.decisions.paused is not None:
            return form("/resume", token, [button("Resume: answer again")])
        words = "A paused site answers nothing. Runs wait for it, or go on without it."
        parts = [text_field("why", "Reason (users read it)"), button("Pause", "quiet")]
        return Html(f"{note(words)}{form('/pause', token, parts)}")

    def _decided(self, proposals: Sequence[Proposal], token: str) -> list[Html]:
        rows = []
        for one in proposals[:MOST_EARLIER]:
            again: Html | str = ""
            if one.approved:
                parts = [button("Withdraw", "quiet", REFUSED)]
                again = form("/decide", token, parts, ticket=one.ticket, why="withdrawn by the owner")
            rows.append(
                [_time(one.decided), one.who, one.plan.title or _whats(one.plan.runs), decision_words(one), again]
            )
        listed = [table(["when", "user", "study", "decision", ""], rows, texts=5)] if rows else [note("None yet.")]
        return [*listed, *more(len(proposals) - MOST_EARLIER, "decision")]

    def _earlier(self) -> list[Html]:
        over = [run for run in self._view.runs.values() if run.ended or run.stopped is not None][::-1]
        rows = [
            [
                _time(run.last),
                run.who,
                run.what,
                "stopped by you" if run.stopped is not None else "ended",
                run.calls,
                size(run.bytes),
            ]
            for run in over[:MOST_EARLIER]
        ]
        listed = (
            [table(["when", "user", "run", "", "calls", "left the site"], rows, texts=4)]
            if rows
            else [note("None yet.")]
        )
        return [*listed, *more(len(over) - MOST_EARLIER, "run")]

    def _page(self, visit: Visit, parts: Sequence[Html], reload: int = 0) -> Answer:
        view = self._view
        about = view.about()
        tiles = [
            ("waiting for you", len(view.waiting)),
            ("running", len(view.running)),
            ("rows", count(about["rows"]) if "rows" in about else "–"),
            ("requests today", sum(line["when"][:10] == _today() for line in view.lines)),
        ]
        of = "" if view.kit is None else f" in {view.kit.federation}, coordinator at {view.kit.server}"
        banners = [_banner(problem) for problem in view.problems]
        banners += [_banner(about["closed"])] if about.get("closed") else []
        if view.decisions.paused is not None:
            why = f": {view.decisions.paused}" if view.decisions.paused else ""
            banners.append(_banner(f"The site is paused since {_time(view.decisions.paused_since)}{why}"))
        title = f"Site {view.file.name}"
        body = join([*banners, header(title, f"Your site{of}.", tiles), *parts], "\n")
        page = whole_page(title, body, links=LINKS, here=visit.path, token=visit.form_token, reload=reload)
        return Answer(page.encode("utf-8", "replace"))

    def _fresh(self) -> SiteView:
        self._view.refresh()
        return self._view


_NOT_REQUIRED = (
    'Studies that keep to your rules run without asking. Write approval = "required" under [rules] in your site.toml '
    "to decide about each one here."
)


def _budget_section(ledger: Ledger) -> Html:
    charges, spent = ledger.charges, ledger.spent
    facts = [
        ("budget", f"epsilon {number(ledger.epsilon)} at delta {number(ledger.delta)}"),
        ("spent", f"epsilon {number(spent)}"),
        ("left", f"epsilon {number(max(0.0, ledger.epsilon - spent))}"),
    ]
    parts = [pairs(facts)]
    if charges:
        began = datetime.fromisoformat(charges[0].when)
        days = [(datetime.fromisoformat(one.when) - began).total_seconds() / 86400 for one in charges]
        lines = [Line("spent", days, [one.epsilon for one in charges])]
        lines.append(Line("budget", [days[0], days[-1]], [ledger.epsilon] * 2, colour=1))
        chart = line_chart(lines, label="epsilon spent", x_label=f"days since {_time(charges[0].when)}", zero=True)
        parts.append(
            Html(f'<div class="charts"><figure><figcaption>Spent over time</figcaption>{chart}</figure></div>')
        )
    rows = [[_time(one.when), _run_of(one.run), one.what, number(one.epsilon)] for one in charges[::-1][:MOST_LINES]]
    listed = [table(["when", "run", "step", "spent in all"], rows, texts=3)] if rows else [note("Nothing is spent.")]
    return section("budget", "Privacy budget", *parts, *listed, *more(len(charges) - MOST_LINES, "charge"))


def _matching(lines: Sequence[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """Return the lines whose texts hold all of the words, in any case."""
    wanted = words.lower().split()
    texts: Callable[[dict[str, Any]], str] = lambda line: " ".join(map(str, line.values())).lower()  # noqa: E731
    return [line for line in lines if not wanted or all(word in texts(line) for word in wanted)]


def _whole(text: str, most: int = 600) -> Html:
    """Return a text as HTML; of a long one the beginning, and all of it when the owner opens it."""
    if len(text) <= most:
        return esc(text, most)
    return Html(f"<details><summary>{esc(text, most)} (show all)</summary>{esc(text, len(text))}</details>")


def _facts(values: Sequence[tuple[str, object]]) -> Html:
    rows = join(Html(f"<dt>{esc(name)}</dt><dd>{esc(value, 500)}</dd>") for name, value in values)
    return Html(f'<dl class="facts">{rows}</dl>')


def _whats(runs: Sequence[PlannedRun]) -> str:
    return ", then ".join(dict.fromkeys(run.what for run in runs))


def _flag(reveals: str) -> str:
    return reveals if reveals in ("nothing", "sums") else "rows"


def _banner(words: object) -> Html:
    return Html(f'<p class="banner" role="alert">{esc(words, 1000)}</p>')


def _run_of(run: str) -> str:
    return run.rpartition(" ")[0] or run


def _interrupted(runs: Iterable[Html]) -> Html:
    lead = "No request came for ten minutes: they were interrupted, or have failed. Their users may resume them."
    return section("interrupted", "Interrupted runs", *runs, lead=lead)


def _time(when: str) -> str:
    return f"{when[:16].replace('T', ' ')} UTC" if when else "–"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _quoted(words: str) -> str:
    from urllib.parse import quote

    return quote(words)


def _back() -> Answer:
    return Answer(status=303, to="/")
