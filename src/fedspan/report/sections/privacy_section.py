"""The section on privacy: what left the sites, whether sums were secure, what was spent and what that leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedspan.errors import UnknownStepError
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import RunRecord
from fedspan.federation.site.steps import find_step
from fedspan.report.markup import Html, esc, few, note, pairs, panel, plural, section, size, table
from fedspan.report.sections.budgets import Budget, reported_budgets
from fedspan.report.sections.call_totals import run_names
from fedspan.report.sections.traffic import step_name

MOST_SITES = 30
MOST_RUNS = 12
MOST_STEPS = 40
_LEAVES = "Leaves the site:"

SECURE = (
    "Sums were carried by a secure sum: the coordinator saw totals over the sites that answered, and no site's part. "
    "That does not cover what totals tell by themselves, the difference of two totals of which one lacks a site, nor "
    "sites that collude with the coordinator. Where all sites are in one process it is a rehearsal."
)
PLAIN = (
    "Sums were not secure: the coordinator receives each site's part before it adds them up, and keeps the total alone."
)
NO_SUMS = "No sum was asked for: the coordinator has received each reply as it left its site."
NOISE = (
    "Noise was added at the sites. Epsilon spent is for all that one run asked of a site, the largest first. A site's "
    "budget, and what all runs together have left of it, are in the ledger that the site keeps; the coordinator, and "
    "so this page, knows of them what a site tells when it refuses."
)


def privacy_section(records: Sequence[RunRecord]) -> Html:
    """Return what left the sites and how it was protected: by noise, by secure sums, or not at all."""
    spent = any(record.privacy is not None for record in records)
    parts = _noise(records)
    if not spent:
        parts.append(note("No noise was added: no differential privacy covers what left the sites."))
    known = [record for record in records if "secure_sum" in record.policy]
    policies = {record.policy["secure_sum"] != "False" for record in known if _sums(record)}
    parts += [note(SECURE if secure else PLAIN, 500) for secure in sorted(policies)]
    if known and not policies and any(record.calls for record in known):
        parts.append(note(NO_SUMS))
    parts += _what_left(records)
    lead = "What left the sites, and what protects it."
    return section("privacy", "Privacy", *parts, lead=lead)


def _sums(record: RunRecord) -> bool:
    """Whether a run asked for sums or means; True also where calls of an older run do not say."""
    return any(call.how.removeprefix("secure ") in ("sum", "mean", "") for call in record.calls)


def _what_left(records: Sequence[RunRecord]) -> list[Html]:
    """Return the table of what left the sites, step by step, in the words of the steps themselves."""
    most: dict[tuple[str, str], int] = {}
    for call in (call for record in records for call in record.calls):
        key = call.step, call.how
        most[key] = max([most.get(key, 0), *call.bytes_up.values()])
    rows = [
        [step_name(step), words_of(step), _SEEN.get(how.removeprefix("secure "), "–"), size(largest)]
        for (step, how), largest in list(most.items())[:MOST_STEPS]
    ]
    hidden = len(most) - len(rows)
    rest = [note(f"and {plural(hidden, 'more step')}")] if hidden > 0 else []
    head = ["step", "what leaves a site", "needed", "largest reply"]
    return [table(head, rows, texts=3), *rest] if rows else []


_SEEN = {"ask": "each reply", "sum": "the total", "mean": "the mean"}


def words_of(step: str) -> str:
    """Return what a step says of what leaves a site, or a dash where it is not installed or says nothing.

    Examples
    --------
    >>> import fedspan.sums.moments
    >>> words_of("fedspan.sums.moments.local_sums").split()[0], words_of("unknown")
    ('its', '–')
    """
    try:
        text = " ".join((find_step(step).function.__doc__ or "").split("\n\n")[0].split())
    except UnknownStepError:
        return "–"
    return text.partition(_LEAVES)[2].replace("`", "").strip() or "–"


def _noise(records: Sequence[RunRecord]) -> list[Html]:
    """Return what the runs have spent of the sites' privacy, what that covers and what it does not."""
    parts: list[Html] = []
    for name, record in list(zip(run_names(records), records, strict=True))[-MOST_RUNS:]:
        spent = record.privacy
        if spent is None:
            continue
        worst = sorted(spent.epsilon, key=lambda site: -spent.epsilon[site])[:MOST_SITES]
        told = reported_budgets(record)
        rows = [
            [
                esc(site, 80),
                _budget(site, spent, told),
                f"{spent.epsilon[site]:.4g}",
                f"{spent.accountant[site]:.4g}" if site in spent.accountant else "–",
            ]
            for site in worst
        ]
        hidden = len(spent.epsilon) - len(worst)
        facts = [
            ("mechanism", spent.mechanism),
            ("guarantee", _guarantee(spent)),
            ("delta", f"{spent.delta:g}"),
            ("unit", spent.unit),
            ("covers", "; ".join(spent.covers)),
            ("does not cover", "; ".join(spent.leaves_out) or "–"),
            ("simulated", f"at {few(spent.simulated)}: this noise protects nobody" if spent.simulated else "no"),
        ]
        if spent.refused:
            facts.append(("refused", f"{few(spent.refused)}: the budget there did not last for the whole run"))
        more = note(f"and {plural(hidden, 'more site')}, none with a larger epsilon") if hidden > 0 else Html("")
        shown = table(["site", "budget", "epsilon spent, exact", "epsilon spent, accountant"], rows, texts=2)
        parts += [panel(name, pairs(facts)), shown, more]
    if parts:
        parts.insert(0, note(NOISE, 500))
    return parts


def _budget(site: str, spent: PrivacySpent, told: Mapping[str, Budget]) -> str:
    if site in told:
        return str(told[site])
    return "none: its noise is simulated" if site in spent.simulated else "in its ledger"


def _guarantee(spent: PrivacySpent) -> str:
    if not spent.guaranteed:
        return "none: how large the noise is depends on the rows"
    if set(spent.simulated) >= set(spent.epsilon):
        return "none: all noise is simulated, and these are the figures that real noise would have"
    return "at sites with a ledger of their own" if spent.simulated else "yes"
