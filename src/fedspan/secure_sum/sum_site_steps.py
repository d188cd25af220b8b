"""The sites' side of the secure sum: five steps, the rounds of Bonawitz et al. (2017).

Every rule that protects a site's part is checked here, by the site itself, whatever the coordinator says: a question is
answered once a sum, so that nobody gets shares of both kinds of one site or a second masked reply, and only for a set
of at least `threshold` sites, more than half of it, whose keys this site knows and who have all been told the same.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from fedspan.errors import FedspanError, InputError, MessageError, PolicyError
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import find_step, step
from fedspan.secure_sum import sum_layout as forms
from fedspan.secure_sum.sum_group import Bytes, Flags, Group, checked_flags, checked_group
from fedspan.secure_sum.sum_masked_share import log_spoilt, part_of
from fedspan.secure_sum.sum_masks import KEY_BYTES, SEAL_BYTES, KeyPair, derived, mask, seal, unseal
from fedspan.secure_sum.sum_modular import Words
from fedspan.secure_sum.sum_secret_shares import SHARE_BYTES, split
from fedspan.secure_sum.sum_vault import Session, Vault
from fedspan.wire import Message

#: Before the names of the payload of the step whose replies are added up.
PAYLOAD = "with "
SEALED_BYTES = 2 * SHARE_BYTES + SEAL_BYTES


def summed_step(payload: Mapping[str, Any]) -> tuple[Any, Message]:
    """Return the step whose replies are added up, and its payload, of the payload of `offer`."""
    inner = {key.removeprefix(PAYLOAD): value for key, value in payload.items() if key.startswith(PAYLOAD)}
    return payload["what"], inner


@step("secure_sum.offer", reveals="nothing", runs=summed_step)
def offer(site: Site, session: str, what: str, largest: float, fraction_bits: int, **payload: Any) -> dict[str, Any]:
    """Leaves the site: a public key for the masks of this sum, and keys, kinds and shapes of the reply.

    AdvertiseKeys. Runs the step `what`, and finds out what nobody else can: whether its numbers are finite and in the
    range of the federation's sums. Nothing of that is told here.
    """
    vault, context = site.context.vault, site.context
    _check_session(site, session)
    if (largest, fraction_bits) != (vault.numbers.largest, vault.numbers.fraction_bits):
        raise PolicyError(
            f"the sums of this site's federation have numbers of up to {vault.numbers.largest:g} with "
            f"{vault.numbers.fraction_bits} binary places, and not of {largest!r} with {fraction_bits!r}"
        )
    _, inner = summed_step({"what": what, **payload})
    if len(inner) != len(payload):
        raise MessageError(f"what a summed step is told has names that begin with {PAYLOAD!r}, and here some do not")
    asked = context.request_digest(what, inner)
    vault.given.check(context.run, context.number, asked)

    def begin() -> Session:
        reply, form = part_of(site, what, inner, vault.numbers)
        return Session(asked, reply, form, vault.numbers, KeyPair(), context.least, what)

    def answer() -> dict[str, Any]:
        assert begun.key is not None
        return {"key": as_array(begun.key.public), "form": forms.as_text(begun.form)}

    begun: Session = vault.begin(session, begin)
    query = {"asked": as_array(asked)}
    return begun.once("offer", query, "this site has seen this call with another step, payload or transform", answer)


@step("secure_sum.share", reveals="nothing")
def share(site: Site, session: str, names: str, keys: Bytes, threshold: int, form: str) -> dict[str, Any]:
    """Leaves the site: shares of its two secrets, sealed for each of the other sites, and a commitment. ShareKeys."""
    vault, known = site.context.vault, _session(site, session)
    question = {"names": names, "keys": keys, "threshold": threshold, "form": form}

    def answer() -> dict[str, Any]:
        assert known.key is not None
        least = max(vault.least, known.least)
        group = checked_group(question, session, known.asked, known.numbers, site.name, known.key.public, least)
        forms.check_fits(known.form, forms.from_text(form))
        known.seed = secrets.token_bytes(KEY_BYTES)
        n = len(group.names)
        of_key, of_seed = (split(secret, threshold, n) for secret in (known.key.secret, known.seed))
        sealed = np.zeros((n, SEALED_BYTES), dtype=np.uint8)
        for k, name in enumerate(group.names):
            if name == site.name:
                known.shares[k] = of_key[k], of_seed[k]
            else:
                key, context = _channel(vault, group, site.name, name, name)
                sealed[k] = as_array(seal(key, of_key[k] + of_seed[k], context))
        known.group = group
        return {"sealed": sealed, "commitment": as_array(commitment(known.seed))}

    return known.once("share", question, "this site has seen this call with another set of sites", answer)


@step("secure_sum.masked", reveals="nothing")
def masked(site: Site, session: str, alive: Flags, sealed: Bytes) -> dict[str, Any]:
    """Leaves the site: its reply under its own mask and one for each other site.

    MaskedInputCollection. `alive` (n,) are the sites that have shared their secrets, and `sealed` what each of them
    sealed for this one: all must have sealed it for this very set of sites, with these keys, and for the sum of the
    same step, payload and transforms. Otherwise it does not open, and no masked reply is given.
    """
    vault, known = site.context.vault, _session(site, session)

    def answer() -> dict[str, Any]:
        group = _group(known)
        me = group.names.index(site.name)
        there = checked_flags(alive, group, me)
        if sealed.shape != (sum(there), SEALED_BYTES) or sealed.dtype != np.uint8:
            raise MessageError("the sealed shares are not one for each site of the set")
        for row, k in enumerate(np.flatnonzero(there).tolist()):
            if k != me:
                key, context = _channel(vault, group, group.names[k], site.name, group.names[k])
                opened = unseal(key, sealed[row].tobytes(), context)
                known.shares[k] = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
        vault.given.masked(site.context.run, site.context.number, known.asked, group.among(there))
        known.alive = there
        assert known.key is not None
        parts = _words(site, known, forms.from_text(group.form))
        seeds = pair_seeds(known.key, me, group, np.flatnonzero(alive).tolist())
        later, earlier = ([seed for k, seed in seeds.items() if (k > me) == is_later] for is_later in (True, False))
        mask(parts, [known.seed, *later], earlier)
        return {"whole": parts[0], "real": parts[1]}

    question = {"alive": alive, "sealed": sealed}
    return known.once("masked", question, "this site has given its masked reply for another set of sites", answer)


@step("secure_sum.confirm", reveals="nothing")
def confirm(site: Site, session: str, alive: Flags) -> dict[str, Any]:
    """Leaves the site: for every other site whose masked reply came, a tag that says which they are.

    ConsistencyCheck.
    """
    vault, known = site.context.vault, _session(site, session)

    def answer() -> dict[str, Any]:
        group = _group(known)
        if "masked" not in known.answered:
            raise FedspanError("this site has given no masked reply in this sum")
        there = checked_flags(alive, group, group.names.index(site.name))
        if any(now and not before for now, before in zip(there, known.alive, strict=True)):
            raise FedspanError("the set names a site that has shared no secrets in this sum")
        known.left = there
        tags = np.zeros((len(group.names), KEY_BYTES), dtype=np.uint8)
        for k in np.flatnonzero(alive).tolist():
            if group.names[k] != site.name:
                tags[k] = as_array(_tag(vault, known, group, site.name, group.names[k], group.names[k]))
        return {"tags": tags}

    refusal = "this site has confirmed another set of sites: it never gives both kinds of share for one site"
    return known.once("confirm", {"alive": alive}, refusal, answer)


@step("secure_sum.unmask", reveals="nothing")
def unmask(site: Site, session: str, tags: Bytes) -> dict[str, Any]:
    """Leaves the site: of each site whose masked reply came a share of its own mask, of others one of their key.

    Unmasking. Never both of one site, and only if as many sites as the threshold says have confirmed the same set:
    `tags` (n, 32) are theirs for this site. Then the site forgets its secrets of this sum.
    """
    vault, known = site.context.vault, _session(site, session)

    def answer() -> dict[str, Any]:
        group = _group(known)
        if not known.left:
            raise FedspanError("this site has confirmed no set of sites in this sum")
        if tags.shape != (len(group.names), KEY_BYTES) or tags.dtype != np.uint8:
            raise MessageError("the tags are not one for each site of the set")
        agreeing = 1  # this site
        for k, name in enumerate(group.names):
            if known.left[k] and name != site.name:
                expected = _tag(vault, known, group, name, site.name, name)
                agreeing += hmac.compare_digest(tags[k].tobytes(), expected)
        if agreeing < group.threshold:
            raise FedspanError(
                f"{agreeing} sites have confirmed this set, fewer than the threshold of {group.threshold}"
            )
        vault.given.unmasked(site.context.run, site.context.number, group.among(known.left))
        shares = np.zeros((len(group.names), SHARE_BYTES), dtype=np.uint8)
        for k, (of_key, of_seed) in known.shares.items():
            if known.alive[k]:
                shares[k] = as_array(of_seed if known.left[k] else of_key)
        known.close()
        return {"shares": shares}

    # There is one set that this site has confirmed: whatever the tags, the shares are those that it gave before.
    return known.once("unmask", {}, "", answer)


#: The rounds of a secure sum, in their order: of these steps alone a call has parts.
STAGES = tuple(find_step(stage) for stage in (offer, share, masked, confirm, unmask))


def pair_seeds(key: KeyPair, me: int, group: Group, others: Iterable[int]) -> dict[int, bytes]:
    """Return the seeds of the masks that site number `me` has in common with `others`, by their numbers."""
    return {k: derived(key.agreed(group.keys[k]), group.view, "mask") for k in others if k != me}


def commitment(seed: bytes) -> bytes:
    """Return what tells whether shares gave the right seed, and nothing of the seed itself."""
    return blake2b(seed, digest_size=32, person=b"fedspan seed").digest()


def as_array(data: bytes) -> Bytes:
    """Return bytes as they travel."""
    return np.frombuffer(data, dtype=np.uint8)


def _check_session(site: Site, session: str) -> None:
    if not session.startswith(f"{site.context.run}/{site.context.number}/"):
        raise FedspanError("this question of a sum names another call than the one that it came with")


def _session(site: Site, session: str) -> Session:
    _check_session(site, session)
    known: Session = site.context.vault.session(session)
    return known


def _words(site: Site, known: Session, form: forms.Form) -> tuple[Words, Words]:
    """Return the site's part as words, or such as spoil the sum where it has none of the agreed form."""
    if known.reply is not None:
        try:
            return forms.packed(known.reply, form, known.numbers)
        except InputError as error:  # whole numbers here, and real ones, of a smaller range, elsewhere
            log_spoilt(site.name, "of this sum", str(error))
    return forms.spoilt(form, known.numbers)


def _group(known: Session) -> Group:
    if known.group is None:
        raise FedspanError("this site has shared no secrets in this sum")
    return known.group


def _channel(vault: Vault, group: Group, sender: str, receiver: str, other: str) -> tuple[bytes, bytes]:
    """Return the key that seals one message of this sum, and what the message is bound to."""
    purpose = json.dumps(["shares", sender, receiver])
    return derived(vault.channel(other), group.view, purpose), group.view + purpose.encode()


def _tag(vault: Vault, known: Session, group: Group, sender: str, receiver: str, other: str) -> bytes:
    """Return what only two sites can say to each other of the sets of sites that this one has seen."""
    purpose = json.dumps(["confirm", sender, receiver])
    return derived(vault.channel(other), group.view + bytes(known.alive) + bytes(known.left), purpose)
