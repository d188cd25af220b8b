"""The section on privacy: what left the sites, whether sums were secure, what was spent and what that leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fedspan.errors import UnknownStepError
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import RunRecord
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import Step, find_step
from fedspan.report.markup import (
    MOST_RUNS,
    MOST_SITES,
    Html,
    PageSection,
    esc,
    few,
    more,
    note,
    pairs,
    panel,
    section,
    size,
    table,
)
from fedspan.report.sections.call_totals import run_names

MOST_STEPS = 40
_LEAVES = "Leaves the site"
_NEEDED = {"ask": "each reply", "sum": "the total", "mean": "the mean", "merge": "one merged reply"}

SECURE = (
    "Sums were carried by a secure sum: the coordinator saw totals over the sites that answered, and no site's part. "
    "That does not cover what totals reveal by themselves, the difference of two totals of which one lacks a site, nor "
    "sites that collude with the coordinator. Where all sites are in one process it is a rehearsal."
)
PLAIN = (
    "Sums were not secure: the coordinator receives each site's part before it adds them up, and keeps the total alone."
)
NO_SUMS = "No sum was requested: the coordinator has received each reply as it left its site."
NOISE = (
    "Noise was added at the sites. Epsilon spent is for all that one run requested of a site, the largest first. A "
    "site's ledger has its budget, and what all runs together have left of it. The coordinator, and so this page, "
    "knows of them what a site reports when it refuses."
)


def reported_budgets(record: RunRecord) -> dict[str, tuple[float, ...]]:
    """Return epsilon, delta and what was spent, for the sites that refused because their budget did not last."""
    return {
        site: tuple(float(failure.facts[name]) for name in ("epsilon", "delta", "spent"))
        for _, site, failure in record.failures
        if failure.kind is FailureKind.BUDGET_SPENT and {"epsilon", "delta", "spent"} <= failure.facts.keys()
    }


def privacy_section(records: Sequence[RunRecord]) -> PageSection:
    """Return what left the sites and how it was protected: by noise, by secure sums, or not at all."""
    calls = [call for record in records for call in record.calls]
    runs = list(zip(run_names(records), records, strict=True))[-MOST_RUNS:]
    noisy = [
        part for name, record in runs if record.privacy is not None for part in _noise(name, record, record.privacy)
    ]
    parts = [note(NOISE, 500), *noisy]
    if all(record.privacy is None for record in records):
        parts = [note("No noise was added: no differential privacy covers what left the sites.")]
    secure = sorted({call.secure for call in calls if call.how in ("sum", "mean", "merge")})
    parts += [note(SECURE if one else PLAIN, 500) for one in secure]
    parts += [note(NO_SUMS)] if calls and not secure else []
    largest: dict[tuple[str, str], int] = {}
    for call in calls:
        key = call.step, call.how
        largest[key] = max([largest.get(key, 0), *call.bytes_up.values()])
    rows = [
        [step, *leaves_and_reveals(step), _NEEDED[how], size(most)]
        for (step, how), most in list(largest.items())[:MOST_STEPS]
    ]
    if rows:
        head = ["step", "what leaves a site", "reveals", "needed", "largest reply"]
        parts.append(table(head, rows, texts=4, stacked=True))
    parts += more(len(largest) - MOST_STEPS, "step")
    return section("privacy", "Privacy", *parts, lead="What left the sites, and what protects it.")


def leaves_and_reveals(step: str) -> tuple[str, str]:
    """Return what leaves a site, from the step's docstring, and what that reveals; dashes where it is not installed."""
    try:
        found: Step | None = find_step(step)
    except UnknownStepError:
        found = _all_steps().get(step)
    if found is None:
        return "–", "–"
    after = (found.function.__doc__ or "").partition(_LEAVES)[2].partition("\n\n")[0]
    return " ".join(after.split()).lstrip(":, ").replace("`", "") or "–", found.reveals


@cache
def _all_steps() -> dict[str, Step]:
    """Import all steps of fedspan: a record alone does not load those of its run."""
    return install_steps()


def _noise(name: str, record: RunRecord, spent: PrivacySpent) -> list[Html]:
    """Return what a run has spent of the sites' privacy, what that covers and what it does not."""
    worst = sorted(spent.epsilon, key=lambda site: -spent.epsilon[site])
    budgets = reported_budgets(record)

    def budget(site: str) -> str:
        if site not in budgets:
            return "none: simulated" if site in spent.simulated else "in its ledger"
        epsilon, delta, before = budgets[site]
        return f"{epsilon:g} at delta {delta:g}, of which {before:.4g} was spent when it refused"

    rows = [
        [
            esc(site, 80),
            budget(site),
            f"{spent.epsilon[site]:.4g}",
            f"{spent.accountant[site]:.4g}" if site in spent.accountant else "–",
        ]
        for site in worst[:MOST_SITES]
    ]
    guarantee = "yes"
    if not spent.guaranteed:
        guarantee = "none: the size of the noise depends on the rows"
    elif set(spent.simulated) >= set(spent.epsilon):
        guarantee = "none: all noise is simulated, and these are the figures that real noise would have"
    elif spent.simulated:
        guarantee = "at sites with a ledger of their own"
    facts = [
        ("mechanism", spent.mechanism),
        ("guarantee", guarantee),
        ("delta", f"{spent.delta:g}"),
        ("unit", spent.unit),
        ("covers", "; ".join(spent.covers)),
        ("does not cover", "; ".join(spent.leaves_out) or "–"),
        ("simulated", f"at {few(spent.simulated)}: this noise protects no row" if spent.simulated else "no"),
    ]
    if spent.refused:
        facts.append(("refused", f"{few(spent.refused)}: the budget there did not last for the whole run"))
    rest = more(len(worst) - MOST_SITES, "site", ", none with a larger epsilon")
    listed = table(["site", "budget", "epsilon spent, exact", "epsilon spent, accountant"], rows, texts=2)
    return [panel(name, pairs(facts)), listed, *rest]
