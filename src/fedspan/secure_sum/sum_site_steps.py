"""The sites' side of the secure sum: five steps, the rounds of Bonawitz et al. (2017).

The site itself checks every rule that protects its part. It answers one query per stage of a sum. So no coordinator
gets both kinds of share of one site, or a second masked reply. It answers only for a set of at least `threshold` sites,
more than half of it. It knows their keys, and all have received the same request.

No message of one site may depend on the values of its rows. A coordinator could choose a transform that scales them.
Whether a number is in range, or a matrix has an inverse, would then reveal any of them bit by bit. So a site whose
reply can't be added up, or whose step fails for its rows, stays in the sum and spoils it. The total shows that some
site did so, and nothing else; the reason is in that site's own log. A step that fails for made-up rows too (other
columns, no rows) fails in the open, with the error for these. Such a site costs its part alone.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np

from fedspan.errors import (
    BudgetError,
    FedspanError,
    InputError,
    LedgerError,
    MessageError,
    PolicyError,
    UnknownStepError,
)
from fedspan.federation.policy import MOST_BITS, MOST_SITES
from fedspan.federation.site.noise_query import query_digest
from fedspan.federation.site.parameters import Flags, Positive, Text, Whole
from fedspan.federation.site.site import Site
from fedspan.federation.site.step_runner import refuse_without_weights
from fedspan.federation.site.steps import Step, find_step, step
from fedspan.privacy.ledger import SimulatedLedger
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_fixed_point import FixedPoint, Words
from fedspan.secure_sum.sum_group import Bytes, Group, check_group, checked_flags, commitment, group_of
from fedspan.secure_sum.sum_masks import KEY_BYTES, SEAL_BYTES, KeyPair, derived, mask, seal, unseal
from fedspan.secure_sum.sum_secret_shares import SHARE_BYTES, split
from fedspan.secure_sum.sum_vault import Session, Vault
from fedspan.wire import Message, as_array, canonical

#: Before the names of the payload of the step whose replies are added up.
PAYLOAD = "with "
SEALED_BYTES = 2 * SHARE_BYTES + SEAL_BYTES
#: Errors about the site's rules and accounts, never about the values of its rows.
_WITHOUT_ROWS = (BudgetError, LedgerError, PolicyError, UnknownStepError)

_log = logging.getLogger("fedspan.site")

FractionBits = Annotated[int, Whole(-MOST_BITS, MOST_BITS)]
Threshold = Annotated[int, Whole(2, MOST_SITES)]
LongText = Annotated[str, Text(2**24)]


def summed_step(payload: Mapping[str, Any]) -> tuple[str, Message]:
    """Return the step whose replies are added up, and its validated payload, from the payload of `offer`."""
    inner = {key.removeprefix(PAYLOAD): value for key, value in payload.items() if key.startswith(PAYLOAD)}
    return payload["what"], find_step(payload["what"]).validated(inner)


@step("secure_sum.offer", reveals="nothing", runs=summed_step)
def offer(
    site: Site, session: str, what: str, largest: Positive, fraction_bits: FractionBits, **payload: Any
) -> dict[str, Any]:
    """Leaves the site: a public key for the masks of this sum, and keys, kinds and shapes of the reply.

    AdvertiseKeys. Runs the step `what`, and checks whether its numbers are finite and in the range of the federation's
    sums. The reply depends on neither.
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
        raise MessageError(f"the names of a summed step's payload begin with {PAYLOAD!r}, and some here do not")
    asked = context.request_digest(what, inner)
    vault.answers.check(context.run, context.number, asked)

    def begin() -> Session:
        site.now_runs(what, inner)
        reply, layout = (context.run_part or part)(site, what, inner, vault.numbers)
        query = query_digest(what, inner, context.transforms, b"")
        return Session(asked, query, reply, layout, vault.numbers, KeyPair(), context.least, what)

    def answer() -> dict[str, Any]:
        assert known.key is not None
        return {"key": as_array(known.key.public), "form": layouts.as_text(known.layout)}

    known: Session = vault.begin(session, begin)
    refusal = "this site has seen this call with another step, payload or transform"
    return known.once("offer", {"asked": as_array(asked)}, refusal, answer)


@step("secure_sum.share", reveals="nothing")
def share(
    site: Site, session: str, names: LongText, keys: Bytes, threshold: Threshold, form: LongText
) -> dict[str, Any]:
    """Leaves the site: shares of its two secrets, sealed for each of the other sites, and a commitment. ShareKeys."""
    vault, known = site.context.vault, _session(site, session)
    query: Message = {"names": names, "keys": keys, "threshold": threshold, "form": form}

    def answer() -> dict[str, Any]:
        assert known.key is not None
        group = group_of(session, known.asked, known.numbers, **query)
        check_group(group, site.name, known.key.public, vault.settings, max(vault.least, known.least))
        vault.check_known(name for name in group.names if name != site.name)
        layouts.check_fits(known.layout, layouts.from_text(form))
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

    return known.once("share", query, "this site has seen this call with another set of sites", answer)


@step("secure_sum.masked", reveals="nothing")
def masked(site: Site, session: str, alive: Flags, sealed: Bytes) -> dict[str, Any]:
    """Leaves the site: its reply under its own mask and one for each other site.

    MaskedInputCollection. `alive` (n,) are the sites that have shared their secrets, and `sealed` what each of them
    sealed for this one. All must have sealed it for this very set of sites, with these keys, and for the sum of the
    same step, payload and transforms. Otherwise it does not open, and the site gives no masked reply.
    """
    vault, known = site.context.vault, _session(site, session)

    def answer() -> dict[str, Any]:
        group = _group(known)
        me = group.names.index(site.name)
        there = checked_flags(alive, group, me)
        others = np.flatnonzero(alive).tolist()
        if sealed.shape != (len(others), SEALED_BYTES):
            raise MessageError("the sealed shares are not one for each site of the set")
        for row, k in enumerate(others):
            if k != me:
                key, context = _channel(vault, group, group.names[k], site.name, group.names[k])
                opened = unseal(key, sealed[row].tobytes(), context)
                known.shares[k] = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
        vault.answers.masked(site.context.run, site.context.number, known.asked, group.among(there))
        known.alive = there
        assert known.key is not None
        parts = _words(site, known, layouts.from_text(group.form))
        seeds = pair_seeds(known.key, me, group, others)
        earlier, later = ([seed for k, seed in seeds.items() if (k > me) == is_later] for is_later in (False, True))
        mask(parts, [known.seed, *later], earlier)
        return {"whole": parts[0], "real": parts[1]}

    query = {"alive": alive, "sealed": sealed}
    return known.once("masked", query, "this site has given its masked reply for another set of sites", answer)


@step("secure_sum.confirm", reveals="nothing")
def confirm(site: Site, session: str, alive: Flags) -> dict[str, Any]:
    """Leaves the site: for every other site whose masked reply came, a tag that names them all.

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
        for k, name in enumerate(group.names):
            if there[k] and name != site.name:
                tags[k] = as_array(_tag(vault, known, group, site.name, name, name))
        return {"tags": tags}

    refusal = "this site has confirmed another set of sites: it never gives both kinds of share for one site"
    return known.once("confirm", {"alive": alive}, refusal, answer)


@step("secure_sum.unmask", reveals="nothing")
def unmask(site: Site, session: str, tags: Bytes) -> dict[str, Any]:
    """Leaves the site: of each site whose masked reply came a share of its own mask, of others one of their key.

    Unmasking. Never both of one site, and only if `threshold` sites have confirmed the same set: `tags` (n, 32) are
    theirs for this site. Then the site drops its secrets of this sum.
    """
    vault, known = site.context.vault, _session(site, session)

    def answer() -> dict[str, Any]:
        group = _group(known)
        if not known.left:
            raise FedspanError("this site has confirmed no set of sites in this sum")
        if tags.shape != (len(group.names), KEY_BYTES):
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
        left, least = group.among(known.left), max(vault.least, known.least)
        vault.answers.unmasked(site.context.run, site.context.number, known.query, left, least)
        shares = np.zeros((len(group.names), SHARE_BYTES), dtype=np.uint8)
        for k, (of_key, of_seed) in known.shares.items():
            if known.alive[k]:
                shares[k] = as_array(of_seed if known.left[k] else of_key)
        known.close()
        return {"shares": shares}

    # This site has confirmed one set: whatever the tags, a repeated query gets the shares that it gave before.
    return known.once("unmask", {}, "", answer)


#: The rounds of a secure sum, in their order: of these steps alone a call has parts.
STAGES = tuple(find_step(stage) for stage in (offer, share, masked, confirm, unmask))


def pair_seeds(key: KeyPair, me: int, group: Group, others: Iterable[int]) -> dict[int, bytes]:
    """Return the seeds of the masks that site number `me` has in common with `others`, by their numbers."""
    return {k: derived(key.agreed(group.keys[k]), group.view, "mask") for k in others if k != me}


def part(site: Site, what: str, payload: Message, numbers: FixedPoint) -> tuple[Message | None, layouts.Layout]:
    """Run the step `what`; return the site's part of the sum, or ``None`` where it spoils the sum, and its layout."""
    summed = find_step(what)
    if site.weighted:
        refuse_without_weights(site)
    try:
        reply = canonical(summed.function(site, **payload), "reply")
        if site.context.charged:
            site.context.check_size(reply)
    except _WITHOUT_ROWS:
        raise
    except Exception as error:
        layout = _layout_for_invented_rows(site, summed, payload)
        why = f"{type(error).__name__}: {error}"
    else:
        layout, why = layouts.layout_of_reply(reply), layouts.out_of_range(reply, numbers)
        if not why:
            return reply, layout
    _log_spoilt(site.name, what, why)
    return None, layout


def _layout_for_invented_rows(site: Site, summed: Step, payload: Message) -> layouts.Layout:
    """Return the layout of the reply for made-up rows, or for zeros where the step fails for these.

    Where zeros fail too, the error is raised: it is not about the site's own rows.
    """
    ledger = SimulatedLedger(site.name, secrets.randbits(256))  # noise that does not leave the site

    def invented(scale: float) -> layouts.Layout:
        return layouts.layout_of_reply(canonical(summed.function(site.invented(ledger, scale), **payload), "reply"))

    try:
        return invented(1.0)
    except Exception:
        return invented(0.0)


def _words(site: Site, known: Session, layout: layouts.Layout) -> tuple[Words, Words]:
    """Return the site's part as words, or random words that make the sum invalid."""
    if known.reply is not None:
        try:
            seed = derived(site.context.vault.filling, known.asked, "filling")
            return layouts.packed(known.reply, layout, known.numbers, seed)
        except InputError as error:  # whole numbers here, and real ones, of a smaller range, elsewhere
            _log_spoilt(site.name, known.what, str(error))
    return layouts.spoilt(layout, known.numbers)


def _log_spoilt(site: str, what: str, why: str) -> None:
    """Log at the site alone why it spoils a sum."""
    _log.warning("site %r has no part to give in the secure sum of step %r, which fails: %s", site, what, why)


def _check_session(site: Site, session: str) -> None:
    if session.rpartition("/")[0] != f"{site.context.run}/{site.context.number}":
        raise FedspanError("this query of a sum names another call than the one that it came with")


def _session(site: Site, session: str) -> Session:
    _check_session(site, session)
    known: Session = site.context.vault.session(session)
    return known


def _group(known: Session) -> Group:
    if known.group is None:
        raise FedspanError("this site has shared no secrets in this sum")
    return known.group


def _channel(vault: Vault, group: Group, sender: str, receiver: str, other: str) -> tuple[bytes, bytes]:
    """Return the key that seals one message of this sum, and what the message is bound to."""
    purpose = json.dumps(["shares", sender, receiver])
    return derived(vault.channel(other), group.view, purpose), group.view + purpose.encode()


def _tag(vault: Vault, known: Session, group: Group, sender: str, receiver: str, other: str) -> bytes:
    """Return a tag, which only two sites can make, of the sets of sites that this one has seen."""
    purpose = json.dumps(["confirm", sender, receiver])
    return derived(vault.channel(other), group.view + bytes(known.alive) + bytes(known.left), purpose)
