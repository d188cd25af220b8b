"""Figures for monitors, in the text format of Prometheus. They count; no name of a user, run or column is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fedspan.console.site_view import SiteView
from fedspan.federation.versions import version_of

#: A metric: its name, kind and meaning, and its values by label.
Metric = tuple[str, str, str, Mapping[str, float]]


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics as text.

    >>> print(exposition([("fedspan_up", "gauge", "Whether it runs.", {"": 1})]), end="")
    # HELP fedspan_up Whether it runs.
    # TYPE fedspan_up gauge
    fedspan_up 1
    """
    lines = []
    for name, kind, words, values in metrics:
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{f'{{{label}}}' if label else ''} {value:.15g}" for label, value in values.items()]
    return "\n".join(lines) + "\n"


def build_info() -> Metric:
    """Return the version as a metric."""
    return "fedspan_info", "gauge", "The version of fedspan.", {f'version="{version_of("fedspan")}"': 1.0}


def site_metrics(view: SiteView) -> str:
    """Return the figures of a site."""
    outcomes = Counter(f'outcome="{line["outcome"]}"' for line in view.lines)
    states = Counter(f'state="{one.state}"' for one in view.decisions.proposals.values())
    about, ledger = view.about(), view.ledger()
    metrics: list[Metric] = [
        build_info(),
        ("fedspan_site_requests_total", "counter", "Requests by outcome, from the audit log.", outcomes),
        (
            "fedspan_site_bytes_total",
            "counter",
            "Bytes that left the site.",
            {"": sum(line["bytes"] for line in view.lines)},
        ),
        ("fedspan_site_studies", "gauge", "Studies by decision.", states),
        ("fedspan_site_runs", "gauge", "Runs with a request in the last ten minutes.", {"": len(view.running)}),
        (
            "fedspan_site_paused",
            "gauge",
            "1 while the owner has paused the site.",
            {"": view.decisions.paused is not None},
        ),
        (
            "fedspan_site_closed",
            "gauge",
            "1 while the data or site.toml can't be read.",
            {"": bool(about.get("closed"))},
        ),
        ("fedspan_site_problems", "gauge", "Files that can't be read or were altered.", {"": len(view.problems)}),
    ]
    if ledger is not None:
        budget = {'kind="all"': ledger.epsilon, 'kind="spent"': ledger.spent}
        metrics.append(
            ("fedspan_site_privacy_epsilon", "gauge", "The privacy budget, and what is spent of it.", budget)
        )
    return exposition(metrics)
