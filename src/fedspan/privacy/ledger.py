"""A site's privacy account: a budget, a secret and every charge, on the site's own disk."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry, UnwritableError
from fedspan.errors import BudgetError, DiskError, InputError, LedgerError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.federation.versions import version_of
from fedspan.privacy.accounting import Cost
from fedspan.privacy.gaussian import check_budget

_FORMAT = 1


@dataclass(frozen=True)
class Charge:
    """One charge: when, for which run and step or transform, its cost, and the epsilon of all charges up to it."""

    when: str
    run: str
    what: str
    query: str
    cost: Cost
    epsilon: float


class FullLedgerError(DiskError, LedgerError):
    """The disk of a site's ledger takes nothing more."""


class Ledger:
    """A site's privacy budget and its secret, in one file that only the site's owner can read.

    Parameters
    ----------
    path : path
        Created where it does not exist (mode 0600), continued where it does.
    epsilon, delta : float
        The budget for all that this site ever reveals about its rows, in all runs. Optional where the file has it.
        Another budget than the file's is the owner's decision, and is written to the file.
    strict : bool, default=False
        Refuse every step whose reply reveals something and carries no noise. For a site that joins federations whose
        protocols its owner has not read: nothing then leaves it unaccounted, neither moments nor distances.
    read_only : bool, default=False
        Read a ledger without changing its file. Every charge is refused.

    Notes
    -----
    A charge is on disk before the reply leaves. A repeated query (same step, payload, transforms and data) gets the
    same noise and costs nothing, in any run, also after a restart. Noise is made of the secret and the query, so that
    repeating a query averages nothing out. To another version of fedspan it is another query, with other noise.

    Two processes may use one ledger: each reads what the other has written before it charges. A line that a crash cut
    short is dropped, because its reply never left. A keyed digest chains the lines: where one was changed or removed,
    the ledger is refused. Lines removed from the *end* can't be noticed, and the owner of the file can write anything.
    A ledger protects a site from others, not from itself. A ledger that is `restored` from a backup, or that has spent
    less than was once seen (`must_have_spent`), refuses until its owner has called `confirm`. **A lost ledger is a
    spent budget**. A new file has a new secret, so that old queries get new noise, and does not know the old charges.
    Keep it like a key, with a backup; never return to an older one.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/clinic.ledger", epsilon=2.0, delta=1e-5)
    >>> ledger
    Ledger(epsilon=2 at delta=1e-05, spent 0)
    """

    simulated = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        strict: bool = False,
        read_only: bool = False,
    ) -> None:
        if (epsilon is None) != (delta is None):
            raise InputError("a ledger's epsilon and delta go together: give both, or neither where its file has them")
        if read_only and epsilon is not None:
            raise InputError("a ledger that is opened for reading has the budget of its file: leave epsilon out")
        budget = None if epsilon is None else check_budget(epsilon, delta)
        self.path = Path(path)
        self.strict = strict
        self._secret = b""
        self._budget = (0.0, 0.0)
        self._charges: list[Charge] = []
        self._cost = Cost()
        self._charged: set[str] = set()
        self._doubt = ""  # why the owner has to confirm this ledger
        self._confirmed = ""  # when it was confirmed
        self._budgets: list[tuple[str, float, float]] = []  # when each was set
        self._file = AppendFile(
            self.path,
            make=budget is not None,
            shared=True,
            read_only=read_only,
            sync=True,
            key_of=_secret_of,
            accept=self._take,
        )
        with self._locked(hint="" if budget is not None else "; a new one needs epsilon and delta"):
            if not self._secret and not read_only:
                self._append("ledger", format=_FORMAT, secret=secrets.token_hex(32))
            if budget is not None and budget != self._budget:
                self._append("budget", epsilon=budget[0], delta=budget[1])
        if not self._budget[0]:
            raise LedgerError(f"the ledger {self.path} has no budget: give epsilon and delta")

    def __repr__(self) -> str:
        with suppress(LedgerError):  # a file that no longer exists is shown as it was
            self._read_on()
        epsilon, delta = self._budget
        return f"Ledger(epsilon={epsilon:g} at delta={delta:g}, spent {self._cost.epsilon(delta):.4g})"

    @property
    def epsilon(self) -> float:
        """The budget, as the file has it now: another process may have changed it."""
        return self._read_on()[0]

    @property
    def delta(self) -> float:
        """The delta of the budget, as the file has it now."""
        return self._read_on()[1]

    @property
    def cost(self) -> Cost:
        """What all processes have spent."""
        self._read_on()
        return self._cost

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that has been spent."""
        return self.cost.epsilon(self._budget[1])

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge, the oldest first."""
        self._read_on()
        return tuple(self._charges)

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Return whether the budget covers one more charge of this size."""
        return (self.cost + Cost(mu2, rho)).within(*self._budget)

    def noise_key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a query's noise without charging it; refuse where the budget would not cover it."""
        return self._key(query, _cost_of(mu2, rho), charge=False)

    def key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a query's noise; the first request of a query is charged.

        Raises
        ------
        BudgetError
            Where the charge would exceed the budget.
        """
        return self._key(query, _cost_of(mu2, rho), charge=True)

    def fingerprint_key(self) -> bytes:
        """Return the key of the digests of the site's data in journals, so that others can't find rows by trying."""
        return _fingerprint_key(self._secret)

    def restored(self) -> None:
        """Note that the file comes from a backup: it refuses until its owner confirms it."""
        with self._locked():
            self._append("restored")

    def confirm(self) -> None:
        """Let a ledger that was restored charge again: the owner's decision."""
        with self._locked():
            self._append("confirmed")

    def must_have_spent(self, left: float, when: str) -> None:
        """Refuse from now on if the file has spent less than it had at a time when `left` of the budget was left."""
        with self._locked():
            second = when[:19]  # budgets are written to the second: of those in one, the smallest counts
            budgets = [one for one in self._budgets if one[0][:19] < second][-1:]
            budgets += [one for one in self._budgets if one[0][:19] == second] or self._budgets[: not budgets]
            if second <= self._confirmed[:19] or any(delta != self._budget[1] for _, _, delta in budgets):
                return
            if left > 0 and self._cost.epsilon(self._budget[1]) < min(one[1] for one in budgets) - left - 1e-4:
                self._doubt = "has spent less than it once had, so that it is an older copy"

    def check_confirmed(self) -> None:
        """Refuse where the owner has to confirm the ledger."""
        if self._doubt:
            raise LedgerError(
                f"this site's ledger {self._doubt}: it refuses until its owner confirms it (fedspan site "
                "confirm-ledger site.toml)"
            )

    def _key(self, query: NoiseQuery, cost: Cost, *, charge: bool) -> bytes:
        digest = _digest_of(query, cost, version_of("fedspan"))
        with self._locked():
            self.check_confirmed()
            if digest.hex() not in self._charged:
                self._check_budget(cost)
                if charge:
                    named = {"run": query.run[:200], "what": query.step[:200], "query": digest.hex()}
                    after = (self._cost + cost).epsilon(self._budget[1])
                    self._append("charge", **named, mu2=cost.mu2, rho=cost.rho, epsilon=after)
        return _noise_key(self._secret, digest)

    def _check_budget(self, cost: Cost) -> None:
        """Refuse a charge that the budget does not cover."""
        if not math.isfinite(cost.mu2 + cost.rho):
            raise BudgetError(
                "this site refuses: the requested noise has no guarantee, and its ledger allows none without one"
            )
        epsilon, delta = self._budget
        if not (self._cost + cost).within(epsilon, delta):
            spent = self._cost.epsilon(delta)
            raise BudgetError(
                f"this site refuses: its privacy budget is epsilon={epsilon:g} at delta={delta:g}, it has spent "
                f"{spent:.4g}, and this call would make it {(self._cost + cost).epsilon(delta):.4g}",
                epsilon=epsilon,
                delta=delta,
                spent=spent,
            )

    def _read_on(self) -> tuple[float, float]:
        """Read what other processes have written, and return the budget."""
        with self._locked():
            return self._budget

    @contextmanager
    def _locked(self, hint: str = "") -> Iterator[None]:
        """Hold the file alone, with all charges of other processes read."""
        try:
            with self._file.locked():
                yield
        except UnwritableError as error:
            raise FullLedgerError(f"the ledger {self.path} {error}, and nothing is charged without it") from None
        except AppendFileError as error:
            raise LedgerError(
                f"the ledger {self.path} {error}{hint}. A damaged ledger can't be repaired: restore a backup of the "
                "same age, or count its budget as spent and begin a new one"
            ) from None

    def _append(self, kind: str, **fields: Any) -> None:
        self._file.append({"kind": kind, "when": datetime.now(UTC).isoformat(timespec="seconds"), **fields})

    def _take(self, entry: Entry) -> None:
        """Take in one entry; `ValueError` refuses the ledger."""
        fields = entry.fields
        kind = fields["kind"]
        if kind == "ledger" and not self._secret:
            self._secret = _secret_of(fields)
        elif kind == "budget":
            self._budget = check_budget(fields["epsilon"], fields["delta"])
            self._budgets.append((fields["when"], *self._budget))
        elif kind == "restored":
            self._doubt = f"was restored from a backup on {fields['when'][:10]}"
        elif kind == "confirmed":
            self._doubt, self._confirmed = "", fields["when"]
        elif kind == "charge":
            cost = _cost_of(fields["mu2"], fields["rho"])
            charge = Charge(fields["when"], fields["run"], fields["what"], fields["query"], cost, fields["epsilon"])
            self._charges.append(charge)
            self._cost += cost
            self._charged.add(fields["query"])
        else:
            raise ValueError(f"{kind!r} is unknown here")


class SimulatedLedger:
    """The account of an embedded site that has none: its secret follows from the run's seed, its budget is unlimited.

    Results can be reproduced, and so can the noise: it protects no row.
    """

    simulated = True
    strict = False

    def __init__(self, name: str, seed: int) -> None:
        self._secret = blake2b(f"fedspan simulated ledger\0{seed}\0{name}".encode(), digest_size=32).digest()

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Return True: there is no budget to exceed."""
        return True

    def key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a query's noise."""
        return _noise_key(self._secret, _digest_of(query, _cost_of(mu2, rho)))

    noise_key = key

    def fingerprint_key(self) -> bytes:
        """Return the key of the digests of the site's data, which is no secret either."""
        return _fingerprint_key(self._secret)


def _secret_of(fields: dict[str, Any]) -> bytes:
    """Return the secret that keys all chains, from the first entry."""
    if fields.get("kind") != "ledger" or fields.get("format") != _FORMAT:
        raise ValueError("it is not the beginning of a ledger")
    return bytes.fromhex(fields["secret"])


def _cost_of(mu2: float, rho: float) -> Cost:
    """Return the cost of noise, which must be above zero."""
    if not (mu2 >= 0 and rho >= 0 and mu2 + rho > 0):
        raise InputError(f"mu2={mu2!r} and rho={rho!r}: what noise costs must be above 0")
    return Cost(float(mu2), float(rho))


def _digest_of(query: NoiseQuery, cost: Cost, version: str = "") -> bytes:
    """Return the digest of a query, of the amount of its noise, and of the version that computes the answer.

    Another version may compute another answer. With the same noise their difference would have none.
    """
    amount = repr((cost.mu2, cost.rho)) + version
    return blake2b(query.digest + amount.encode(), digest_size=32).digest()


def _noise_key(secret: bytes, digest: bytes) -> bytes:
    return blake2b(b"fedspan noise key\0" + digest, key=secret, digest_size=32).digest()


def _fingerprint_key(secret: bytes) -> bytes:
    """Return the key of the digests of a site's data, from which no key of noise can be computed."""
    return blake2b(b"fedspan fingerprint key", key=secret, digest_size=32).digest()
