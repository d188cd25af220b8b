"""A site's worker whose steps run in the tests' process.

A worker forks two processes, and a process as large as that of the tests takes longer to fork than most requests take
to answer. Tests of requests, disks and rules use this worker. What a step process does is tested in
``test_step_process``, and every protocol runs in real ones in ``tests/laws/test_engines``.
"""

from __future__ import annotations

from unittest.mock import patch

from fedspan.engines.remote.site import site_worker
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.step_runner import StepRunner
from fedspan.federation.site.steps import find_step


class StepsHere(StepRunner):
    """In place of a `StepProcess`; no deadline ends its steps."""

    def __init__(self, site, memory):
        super().__init__(site)

    def begin(self, left, seconds, threads):
        pass

    def close(self):
        pass

    def fewest(self, step, payload, transforms=()):
        call = Call("", 0, 0, find_step(step), dict(payload), (), transforms)
        context = CallContext({}, step=step)
        return int(call.step.fewest(self.shown(call, context) if transforms else self.site, **payload))


def worker_here(*args, **options):
    """Return a `SiteWorker` without processes."""
    with patch.object(site_worker, "StepProcess", StepsHere):
        return site_worker.SiteWorker(*args, **options)
