"""Requests as the site's owner sees them: of a secure sum, the step whose replies are added up."""

from __future__ import annotations

from fedspan.engines.remote.messages.identity import Who
from fedspan.engines.remote.messages.request_head import Head
from fedspan.engines.remote.messages.site_call import SiteCall
from fedspan.errors import MessageError
from fedspan.owner.owner_request import Ask
from fedspan.secure_sum.sum_site_steps import STAGES
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import Message

#: What is known of a message that nobody has signed.
NOBODY = Ask("", "", "", -1, 0, "", (), "", False)


def ask_of_call(call: SiteCall, who: Who, vault: Vault, first: bool) -> Ask:
    """Return a call as the owner sees it: made of the very object that is run."""
    step, how = call.step.id, call.how
    payload: Message | None = call.payload
    if call.step in STAGES:
        how = f"secure {step.rpartition('.')[2]}"
        if call.step.runs is not None:
            step, payload = call.step.runs(call.payload)
            if not isinstance(step, str):
                raise MessageError("a secure sum names the step whose replies it adds up")
        else:
            step, payload = vault.about(call.session) or step, None
    transforms = tuple(transform.id for transform in call.transforms)
    return Ask(who.name, who.role, call.run, call.number, call.part, step, transforms, how, first, payload)


def ask_of_head(head: Head, who: Who) -> Ask:
    """Return a request as the owner sees it that is no call, or is refused before it is read to its end."""
    how = head.kind if head.kind != "call" else f"secure {head.stage}" if head.stage else head.how
    transforms = tuple(name for name, _ in head.transforms)
    return Ask(who.name, who.role, head.run, head.number, head.part, head.step, transforms, how, False)


def ask_of_nonsense(head: Message, who: Who) -> Ask:
    """Return what can be said of a request whose head is not as it must be."""
    run, step = (value[:200] if isinstance(value := head.get(name), str) else "" for name in ("run", "step"))
    return Ask(who.name, who.role, run, -1, 0, step, (), "", False)
