"""A user's study, shown to owners: what the user reads meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import fedspan as fs
from fedspan.engines.remote.coordinator import proposal
from fedspan.engines.remote.coordinator.site_directory import SiteReport
from fedspan.engines.remote.messages.envelope import Opened
from fedspan.engines.remote.messages.identity import Participant
from fedspan.federation.outcomes import Failure, FailureKind


def test_a_site_that_cannot_be_asked_is_a_sentence_with_its_reason(monkeypatch):
    approved = Opened(
        Participant("b"), {"kind": "proposal"}, {"about": memoryview(b'{"state": "once", "why": ""}')}, {}, ""
    )
    restarting = Failure(FailureKind.OFFLINE, "the site's worker is restarting")
    answers = [restarting, restarting, Failure(FailureKind.OFFLINE, "no answer"), approved]

    class Directory:
        def __init__(self):
            self.reports, self.study = {"b": SiteReport(rows=10, approval=True)}, ""

        def send(self, kind, run, to, head, parts):
            return dict.fromkeys(to, answers.pop(0))

    monkeypatch.setattr(proposal, "rehearse", lambda *study: SimpleNamespace(digest="d", text=lambda: "plan"))
    monkeypatch.setattr(proposal, "PAUSE", 0.0)
    lines = []
    directory = Directory()
    proposal.propose(directory, lambda fed: None, "", fs.Policy(), 0, None, lines.append)
    assert lines == [
        f"study {directory.study} waits for the approval of the owners of b",
        "b has not decided: the site's worker is restarting",
        "b has not decided: no answer",
    ]
