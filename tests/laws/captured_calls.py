"""All calls that the examples of protocols make on the embedded engine, with the replies."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site.call_context import CallContext
from fedspan.sums.moments import local_centred_products, local_centred_sums, local_sums
from fedspan.sums.new_rows import local_row_blocks

from .protocol_examples import EXAMPLES, VARIANTS


class Captured(NamedTuple):
    """A call to one site, and its reply."""

    call: Call
    site: fs.Site
    reply: dict[str, Any]


#: The steps that charged a site's ledger in the examples, each with whether the cost was finite.
CHARGED: set[tuple[str, bool]] = set()


def captured_calls() -> dict[str, list[Captured]]:
    """Return the calls of all examples by the id of the step."""
    found = _run_examples()
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    return found


@cache
def _run_examples() -> dict[str, list[Captured]] | str:
    """Run all examples, once in a process, and return their calls, or which of them fails and why."""
    found: dict[str, list[Captured]] = {}
    original = LocalEngine.call

    def listening(self, call, to, accepted, policy):
        outcomes = original(self, call, to, accepted, policy)
        for name, outcome in outcomes.items():
            if isinstance(outcome, Delivery):
                captured = Captured(call, self._hosts[name].site, outcome.reply)
                found.setdefault(call.step.id, []).append(captured)
        return outcomes

    charge = CallContext.charge

    def charging(self, data, mark, mu2, rho):
        CHARGED.add((self.step, bool(np.isfinite(mu2 + rho))))
        return charge(self, data, mark, mu2, rho)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "call", listening)
        patch.setattr(CallContext, "charge", charging)
        for example in [*EXAMPLES.values(), *VARIANTS]:
            try:
                example.run()
            except Exception as error:
                name = example.protocol.__name__
                return f"steps can't be tried, because the example of {name} fails: {type(error).__name__}: {error}"
        rows = np.random.default_rng(0).normal(size=(60, 5))
        fed = fs.federate(rows, sites=np.arange(60) % 4, policy=fs.Policy(secure_sum=True))
        fs.FedStandardScaler().fit(fed)
        plain = fs.federate(rows, sites=np.arange(60) % 4)  # within a secure sum these are not seen
        plain.sum(local_sums)
        for step in (local_centred_sums, local_centred_products):
            plain.sum(step, centre=rows.mean(axis=0))
        plain.ask(local_row_blocks)
    return found
