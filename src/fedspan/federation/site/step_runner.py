"""Runs one step on a site's rows, seen through the call's transforms: all of a call that reads data."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from fedspan.errors import InputError, PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.shown_rows import ShownRows
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import find_step
from fedspan.wire import Message, canonical


class Runner(Protocol):
    """Runs steps: here, or in a process of its own."""

    def run(self, call: Call, payload: Message, context: CallContext) -> Message:
        """Run the step and return its reply. `context` then has its charges and what it did to the site's state."""


class StepRunner:
    """Runs steps in this process; the last view through transforms is kept, with what steps have computed of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._is_plain = site.ledger is None
        self._seen_through: tuple[bytes, Site] = (b"", site)

    def run(self, call: Call, payload: Message, context: CallContext) -> Message:
        """Run the step and return its reply."""
        plain = self._is_plain and not call.transforms and not call.step.public
        site = self.site.in_call(context) if plain else self.shown(call, context)
        return reply_of(call, payload, site)

    def shown(self, call: Call, context: CallContext) -> Site:
        """Return the site as the call sees it.

        A strict ledger refuses to show data before the step has charged, and no public step is shown any.
        """
        own = self.site.in_call(context)
        if context.ledger is not None and context.ledger.strict:
            context.gate = partial(refuse_without_noise, call)
        elif call.step.public:
            context.gate = refuse_rows
        return self._view(call, own).in_call(context) if call.transforms else own

    def _view(self, call: Call, own: Site) -> Site:
        digests = call.transform_digests
        # Simulated noise depends on the run's seed.
        private = any(transform.private for transform in call.transforms)
        key = b"".join(digests) + (repr(call.seed).encode() if private else b"")
        before, seen = self._seen_through
        if before != key:
            # Transforms after those of the last call begin with what that view keeps of the rows.
            more = before and not private and key.startswith(before)
            first, site = (len(before) // len(digests[0]), seen) if more else (0, self.site)
            ledger = own.ledger if private else None
            for number, transform in enumerate(call.transforms[first:], first):
                site = transform.applied_to(site, ledger, call.run, digests[:number])
            self._seen_through = (key, site)
        return self._seen_through[1]


def reply_of(call: Call, payload: Message, site: Site) -> Message:
    """Run the call's step on the site as the call sees it, and check the reply."""
    if site.weighted:
        refuse_without_weights(site)
    reply = canonical(call.step.function(site, **payload), "reply")
    context = site.context
    if context.ledger is not None and context.ledger.strict:
        refuse_without_noise(call, site, replied=True)
    if context.charged:
        context.check_size(reply)
    return reply


def refuse_without_noise(call: Call, site: ShownRows, *, replied: bool = False) -> None:
    """Refuse, under a strict ledger, a reply that reveals something and carries no noise.

    Called whenever a step is about to read data, and once it has `replied`.
    """
    step = find_step(site.context.step)
    if not replied:
        refuse_rows(site)
    if not step.public and not site.context.charged and not any(transform.private for transform in call.transforms):
        raise PolicyError(
            f"the strict ledger of site {site.name!r} lets no reply leave that carries no noise, and that of step "
            f"{step.id!r} carries none"
        )


def refuse_rows(site: ShownRows) -> None:
    """Refuse to show rows to a step that reveals nothing: whether it fails could reveal them."""
    step = find_step(site.context.step)
    if step.public:
        raise PolicyError(
            f"step {step.id!r} declares that it reveals nothing, and reads rows of site {site.name!r}: whether it "
            "fails would reveal something about them; declare reveals='sums'"
        )


def refuse_without_weights(site: Site) -> None:
    """Refuse a step that would count every row once, at a site whose rows have weights."""
    step = find_step(site.context.step)
    if not step.public and not step.weighted:
        raise InputError(
            f"step {step.id!r} takes no account of sample_weight, and the rows of site {site.name!r} have weights: use "
            "a site without them, or repeat its rows"
        )
