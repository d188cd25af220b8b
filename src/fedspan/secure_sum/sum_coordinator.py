"""The coordinator's side of the secure sum: five queries to the sites, and no look at any single part.

After Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning". A site that
leaves after it has shared its secrets costs nothing but its part: the others' shares of its key take its masks away.
A query that a site did not answer is sent once more; the site then repeats its answer, if it gave one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import frames_inside
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError
from fedspan.federation.calls.call import Call, Collected, Exchange
from fedspan.federation.calls.reply_checks import misshapen
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.policy import MOST_SITES, SecureSum
from fedspan.federation.site.noise_query import query_digest
from fedspan.secure_sum import sum_layout as forms
from fedspan.secure_sum.sum_group import Group, group_of
from fedspan.secure_sum.sum_layout import SpoiltError
from fedspan.secure_sum.sum_masks import KEY_BYTES, KeyPair, check_installed, mask
from fedspan.secure_sum.sum_modular import Words, add
from fedspan.secure_sum.sum_queries import Queries, TooFewError
from fedspan.secure_sum.sum_secret_shares import SHARE_BYTES, Joiner
from fedspan.secure_sum.sum_site_steps import (
    PAYLOAD,
    SEALED_BYTES,
    commitment,
    confirm,
    masked,
    offer,
    pair_seeds,
    share,
    unmask,
)
from fedspan.wire import Message


class SecureSummation:
    """Adds replies up by the double-masking protocol (`fedspan.federation.calls.call.Summation`)."""

    def __init__(self, settings: SecureSum) -> None:
        self.settings = settings
        self._sets: dict[bytes, list[frozenset[str]]] = {}  # by query: the sets of sites that it was summed over

    def check_possible(self, what: str, n_sites: int) -> None:
        """Refuse a sum that can't be secure, before any site is contacted."""
        check_installed()
        least = self.settings.least
        if not least <= n_sites <= MOST_SITES:
            raise PolicyError(
                f"{what} over {n_sites} site{'s' * (n_sites != 1)} cannot be a secure one: that takes from {least} to "
                f"{MOST_SITES} sites (the sum over one would be its part)"
            )

    def collect(self, call: Call, exchange: Exchange, needed: int) -> Collected:
        """Return the sum of the replies to `call`, without showing them to the coordinator.

        A sum over fewer than `needed` sites is given up before it is uncovered: it may be made again over more of them,
        and the difference would be one site's part.
        """
        self._warn_of_difference(call)
        found = Collected()
        try:
            _Sum(call, self.settings, exchange, found).make(needed)
        except TooFewError:
            found.answered = ()
        except InputError as error:
            found.error = str(error)
        except SpoiltError as error:
            found.error = f"the secure sum of step {call.step.id!r} is refused: {error}"
        except FedspanError as error:
            found.error = f"the secure sum of step {call.step.id!r} failed: {error}"
        # A site that gave a masked reply is in the total, even if it was not reached again.
        failed = found.failed.keys() - set(found.answered)
        found.failed = {site: found.failed[site] for site in call.to if site in failed}
        found.changes = {site: found.changes[site] for site in found.answered if site in found.changes}
        return found

    def _warn_of_difference(self, call: Call) -> None:
        """Warn of two sums of one query whose sets of sites differ by fewer sites than a sum may be over.

        Sites can't notice that: a query that differs in its last bit is another one.
        """
        query = query_digest(call.step.id, call.payload, call.transform_digests, b"")
        now, sets, least = frozenset(call.to), self._sets.setdefault(query, []), self.settings.least
        if now in sets:
            return
        for before in sets:
            few = sorted(now ^ before)
            if len(few) < least and (now < before or before < now):
                warnings.warn(
                    f"the secure sums of step {call.step.id!r} over {len(before)} and over {len(now)} sites reveal the "
                    f"sum over {', '.join(map(repr, few))} by their difference, fewer than the {least} sites that a "
                    "sum may be over: request one of the two only, or set SecureSum(least=...) to the number of all "
                    "sites",
                    stacklevel=frames_inside(),
                )
                break
        sets.append(now)


class _Sum(Queries):
    """One secure sum; `found` is filled as it goes."""

    def make(self, needed: int) -> None:
        group, commitments, sealed = self.share(*self.offer())
        there = [k for k, name in enumerate(group.names) if name in sealed]
        if len(there) < needed:  # a site gives its masked reply to one set a call: not to this one
            raise TooFewError
        came, totals = self.masked(group, there, sealed)
        if len(came) < needed:
            raise TooFewError
        self.unmask(group, there, came, commitments, totals)
        form = forms.from_text(group.form)
        self.found.replies = {"": forms.unpacked(*totals, form, self.numbers, len(came))}
        self.found.answered = tuple(group.names[k] for k in came)

    def offer(self) -> tuple[dict[str, Message], forms.Form]:
        """Have the sites run the step; return their keys, and the form of reply that most of them have."""
        payload = {
            "what": self.call.step.id,
            "largest": self.numbers.largest,
            "fraction_bits": self.numbers.fraction_bits,
            **{PAYLOAD + key: value for key, value in self.call.payload.items()},
        }
        offers = self.checked(self.ask(offer, self.call.to, payload, reads=True), np.uint8, {"key": (KEY_BYTES,)})
        read: dict[str, forms.Form] = {}
        for site, reply in offers.items():
            try:
                read[site] = forms.from_text(reply.get("form"))
            except MessageError as error:
                self.fail(site, Failure(FailureKind.MALFORMED, str(error)))
        for site, failure in misshapen(replace(self.call, how="sum"), forms.examples(read), {}).items():
            self.fail(site, failure)
            del read[site]
        self.check_enough(read)
        form = forms.agreed(list(read.values()), self.call.step.id)
        return {site: offers[site] for site in read}, form

    def share(
        self, offers: dict[str, Message], form: forms.Form
    ) -> tuple[Group, dict[str, bytes], dict[str, NDArray[np.uint8]]]:
        """Have the sites share their secrets; return what each of them sealed for the others."""
        names = tuple(offers)
        told: Message = {
            "names": json.dumps(names),
            "keys": np.stack([offers[name]["key"] for name in names]),
            "threshold": self.threshold,
            "form": forms.as_text(form),
        }
        shapes = {"sealed": (len(names), SEALED_BYTES), "commitment": (KEY_BYTES,)}
        replies = self.checked(self.ask(share, names, told), np.uint8, shapes)
        group = group_of(self.session, self.asked, self.numbers, **told)
        commitments = {name: reply["commitment"].tobytes() for name, reply in replies.items()}
        return group, commitments, {name: reply["sealed"] for name, reply in replies.items()}

    def masked(
        self, group: Group, there: list[int], sealed: Mapping[str, NDArray[np.uint8]]
    ) -> tuple[list[int], tuple[Words, Words]]:
        """Hand the sealed shares on; return whose masked replies came, and their sum."""
        names = [group.names[k] for k in there]
        apart = {group.names[k]: {"sealed": np.stack([sealed[name][k] for name in names])} for k in there}
        replies = self.ask(masked, names, {"alive": _flags(group, there)}, apart)
        whole, real = forms.sizes(forms.from_text(group.form), self.numbers)
        replies = self.checked(replies, np.uint64, {"whole": whole, "real": real})
        totals = np.zeros(whole, dtype=np.uint64), np.zeros(real, dtype=np.uint64)
        for reply in replies.values():
            add(totals[0], reply["whole"])
            add(totals[1], reply["real"])
        return [k for k in there if group.names[k] in replies], totals

    def unmask(
        self,
        group: Group,
        there: list[int],
        came: list[int],
        commitments: Mapping[str, bytes],
        totals: tuple[Words, ...],
    ) -> None:
        """Take the masks off `totals`: the own ones of those who came, and those of pairs with the ones who left."""
        tags = self.confirm(group, came)
        none = np.zeros(KEY_BYTES, dtype=np.uint8)
        apart = {
            group.names[k]: {"tags": np.stack([tags[name][k] if name in tags else none for name in group.names])}
            for k in came
            if group.names[k] in tags
        }
        replies = self.ask(unmask, tuple(apart), {}, apart)
        replies = self.checked(replies, np.uint8, {"shares": (len(group.names), SHARE_BYTES)})
        held = {k: replies[group.names[k]]["shares"] for k in came if group.names[k] in replies}
        joiner = Joiner(list(held), self.threshold)
        plus: list[bytes] = []
        minus: list[bytes] = []
        for k in there:
            secret = joiner({holder: shares[k].tobytes() for holder, shares in held.items()})
            if k in came:
                right = commitment(secret) == commitments[group.names[k]]
                minus.append(secret)
            else:
                key = KeyPair(secret)
                right = key.public == group.keys[k]
                # The others have added the masks of pairs with later ones, and subtracted those with earlier ones.
                for other, seed in pair_seeds(key, k, group, came).items() if right else ():
                    (minus if other < k else plus).append(seed)
            if not right:
                raise FedspanError(f"the shares of site {group.names[k]!r} do not fit: some site sends wrong ones")
        mask(totals, plus, minus)

    def confirm(self, group: Group, came: list[int]) -> dict[str, NDArray[np.uint8]]:
        """Have the sites tell each other whose masked replies came; return the tags of each."""
        replies = self.ask(confirm, [group.names[k] for k in came], {"alive": _flags(group, came)})
        replies = self.checked(replies, np.uint8, {"tags": (len(group.names), KEY_BYTES)})
        return {name: reply["tags"] for name, reply in replies.items()}


def _flags(group: Group, members: Sequence[int]) -> NDArray[np.bool_]:
    flags = np.zeros(len(group.names), dtype=np.bool_)
    flags[list(members)] = True
    return flags
