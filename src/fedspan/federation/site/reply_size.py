"""How large a reply will be, found out before a ledger is charged for it: no budget for what may not leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.errors import PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import Asked
from fedspan.federation.site.noise_query import Question, SiteLedger
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum.sum_masked_share import Uncharged
from fedspan.secure_sum.sum_site_steps import offer, summed_payload
from fedspan.wire import Message, canonical, encoded_size

if TYPE_CHECKING:
    from fedspan.federation.site.pending_call import Kept
    from fedspan.secure_sum.sum_vault import Vault

_MOST_KNOWN = 256
_FEW = 256  # whole numbers in an array that may be widths and counts


class ChargedIfItFits:
    """A site's ledger, which is charged only after `check` has not refused."""

    def __init__(self, ledger: SiteLedger, check: Callable[[], None]) -> None:
        self._ledger = ledger
        self._check = check

    @property
    def simulated(self) -> bool:
        """Whether the secret is none."""
        return self._ledger.simulated

    @property
    def strict(self) -> bool:
        """Whether replies without noise are refused."""
        return self._ledger.strict

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Whether the budget lasts for a charge that was not made before."""
        return self._ledger.lasts(mu2=mu2, rho=rho)

    def fingerprint_key(self) -> bytes:
        """Return the secret by which the site's data are known again."""
        return self._ledger.fingerprint_key()

    def key(self, question: Question, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Charge a question, unless the reply to it is too large."""
        self._check()
        return self._ledger.key(question, mu2=mu2, rho=rho)


class ReplySizes:
    """Bytes of replies, by what decides them: step, lenses, and all of the payload but real numbers' values."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def check(self, site: Site, call: Call, kept: Kept, vault: Vault, largest: int) -> None:
        """Refuse a call whose reply has more bytes than `largest` for invented rows of the same shape."""
        key = repr((call.step.name, [lens.name for lens in call.lenses], _shapes(call.payload)))
        if key not in self._known:
            while len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = _size(site, call, kept, vault)
        size = self._known[key]
        if size is not None and size > largest:
            raise PolicyError(
                f"the reply has more than the {largest:,} bytes allowed, and the privacy budget is not charged for it"
            )


def _size(site: Site, call: Call, kept: Kept, vault: Vault) -> int | None:
    """Return the bytes of a reply, in a secure sum those of the part; ``None`` where invented rows do not do."""
    free, what, payload = Uncharged(), call.step.name, call.payload
    summed = call.step is find_step(offer)
    if summed:
        what, payload = str(payload["what"]), summed_payload(payload)
    work: tuple[Any, ...] = (kept.state, call.seed, call.number, vault, free, Asked(call.run, what, payload))
    try:
        seen = site.at_work(*work).invented(free, 1.0)
        for number, lens in enumerate(call.lenses):
            seen = lens.applied_to(seen, free, call.run, call.lens_digests[:number])
        seen = seen.at_work(*work)
        if summed:
            seen.asked_for(what, payload)
        return encoded_size(canonical(find_step(what).function(seen, **payload), "reply"))
    except Exception:
        return None  # what the site's own rows give is measured before it leaves


def _shapes(payload: Message) -> list[object]:
    told: list[object] = []
    for key, value in sorted(payload.items()):
        if isinstance(value, np.ndarray):
            few = value.dtype.kind not in "fc" and value.size <= _FEW
            told.append((key, value.dtype.str, value.shape, value.tolist() if few else None))
        else:
            told.append((key, type(value) if isinstance(value, float) else value))
    return told
