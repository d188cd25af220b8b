"""The site's own account of its privacy: a budget, a secret, and every charge, on the site's disk."""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.errors import BudgetError, InputError, LedgerError
from fedspan.federation.site.noise_query import Question
from fedspan.privacy.accounting import Cost
from fedspan.privacy.gaussian import check_budget
from fedspan.privacy.noise_keys import checked_cost, fingerprint_key, noise_digest, noise_key

_FORMAT = 1


@dataclass(frozen=True)
class Charge:
    """One charge: when, for which run and step or lens, what it cost, and the epsilon of all charges up to it."""

    when: str
    run: str
    what: str
    question: str
    cost: Cost
    epsilon: float


class Ledger:
    """A site's privacy budget and its secret, in one file that only the site's owner can read.

    Parameters
    ----------
    path : path
        Made where it does not exist (mode 0600), continued where it does.
    epsilon, delta : float
        The budget for all that this site ever says about its rows, in all runs. May be left out where the file has it.
        Another budget than the file's is the owner's decision, and written into it.
    strict : bool, default=False
        Refuse every step whose reply carries no noise and is not public (``@step(public=True)``: names of columns).
        For a site that joins federations whose protocols its owner has not read: nothing then leaves it unaccounted,
        neither moments for a start nor distances for a map.
    read_only : bool, default=False
        Look at a ledger without writing to its file, whatever state that is in. Every charge is refused.

    Notes
    -----
    A charge is on disk before the reply leaves. A question that was asked before (same step, payload and lenses, same
    data) gets the same noise and costs nothing, in any run, also after a restart: noise is made of the secret and the
    question, so that asking often averages nothing out.

    Two processes may use one ledger: each looks at what the other has written before it charges. A line that a crash
    has cut off is dropped, because its reply never left. Lines are chained by a keyed digest: where one was changed or
    taken out, the ledger is refused. Lines taken off the *end* cannot be noticed, and the owner of the file can write
    anything: a ledger protects a site from others, not from itself. **A lost ledger is a spent budget**: a new file has
    a new secret, so that old questions get new noise, and knows nothing of what was said. Keep it like a key, and keep
    a backup; never go back to an older one.

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
            raise InputError("a ledger that is only looked at has the budget that its file says: leave epsilon out")
        budget = None if epsilon is None else check_budget(epsilon, delta)
        self.path = Path(path)
        self.strict = strict
        self._read_only = read_only
        self._thread = threading.Lock()
        self._secret = b""
        self._budget: tuple[float, float] | None = None
        self._charges: list[Charge] = []
        self._known: set[str] = set()
        self._chain = b""
        self._read_to = 0
        with self._locked(make=budget is not None) as file:
            if not self._secret and not read_only:
                self._append(file, "ledger", {"format": _FORMAT, "secret": secrets.token_hex(32)})
            if budget is not None and budget != self._budget:
                self._append(file, "budget", {"epsilon": budget[0], "delta": budget[1]})
        if self._budget is None:
            raise LedgerError(f"the ledger {self.path} has no budget: give epsilon and delta")

    def __repr__(self) -> str:
        with suppress(LedgerError):  # a file that is gone is shown as it was
            self._look()
        epsilon, delta = self._known_budget
        return f"Ledger(epsilon={epsilon:g} at delta={delta:g}, spent {self._known_cost().epsilon(delta):.4g})"

    @property
    def epsilon(self) -> float:
        """The budget, as the file has it now: another process may have changed it."""
        self._look()
        return self._known_budget[0]

    @property
    def delta(self) -> float:
        """The delta of the budget, as the file has it now."""
        self._look()
        return self._known_budget[1]

    @property
    def cost(self) -> Cost:
        """What has been spent, by all processes."""
        self._look()
        return self._known_cost()

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that has been spent."""
        return self.cost.epsilon(self._known_budget[1])

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge, the oldest first."""
        self._look()
        return tuple(self._charges)

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Whether the budget lasts for one more charge."""
        return (self.cost + Cost(mu2, rho)).within(*self._known_budget)

    def key(self, question: Question, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a question's noise, charged if this is the first time that it is asked.

        Raises
        ------
        BudgetError
            Where the charge would exceed the budget.
        """
        cost = checked_cost(mu2, rho)
        digest = noise_digest(question, cost)
        with self._locked() as file:
            if digest.hex() not in self._known:
                self._charge(file, question, digest.hex(), cost)
        return noise_key(self._secret, digest)

    def fingerprint_key(self) -> bytes:
        """Return the key by which a journal's digest of the site's data is made: nobody else can try rows at it."""
        return fingerprint_key(self._secret)

    def _charge(self, file: Any, question: Question, digest: str, cost: Cost) -> None:
        before, (epsilon, delta) = self._known_cost(), self._known_budget
        if not math.isfinite(cost.mu2 + cost.rho):
            raise BudgetError(
                "this site refuses: the noise that is asked for has no guarantee, and its ledger gives none away"
            )
        if not (before + cost).within(epsilon, delta):
            raise BudgetError(
                f"this site refuses: its privacy budget is epsilon={epsilon:g} at delta={delta:g}, it has spent "
                f"{before.epsilon(delta):.4g}, and this call would make it {(before + cost).epsilon(delta):.4g}"
            )
        after = (before + cost).epsilon(delta)
        run, what = question.run[:200], question.what[:200]
        values = {"run": run, "what": what, "question": digest, "mu2": cost.mu2, "rho": cost.rho, "epsilon": after}
        self._append(file, "charge", values)

    @contextmanager
    def _locked(self, make: bool = False) -> Iterator[Any]:
        """Have the file to this process alone, with all that others have written to it known."""
        try:
            import fcntl
        except ImportError:
            raise LedgerError("a ledger needs a system that can lock files for one process: Linux or macOS") from None
        with self._thread:
            try:
                new = make and not self.path.exists()
                flags = os.O_RDONLY if self._read_only else os.O_RDWR | (os.O_CREAT if make else 0)
                file = os.fdopen(os.open(self.path, flags | os.O_CLOEXEC, 0o600), "rb" if self._read_only else "r+b")
            except OSError as error:
                hint = "" if make else "; a new one needs epsilon and delta"
                raise LedgerError(f"the ledger {self.path} cannot be opened: {error.strerror}{hint}") from None
            with file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise LedgerError(f"the ledger {self.path} can be read by others: take that back with chmod 600")
                fcntl.flock(file, fcntl.LOCK_SH if self._read_only else fcntl.LOCK_EX)
                self._read(file)
                yield file
            if new:
                _sync_folder(self.path.parent)

    def _read(self, file: Any) -> None:
        """Take in what was written since the last look; drop a last line that was never finished."""
        size = file.seek(0, os.SEEK_END)
        if size < self._read_to:
            raise LedgerError(f"the ledger {self.path} has become shorter: lines were taken off its end")
        known = self._chain.hex().encode() + b"\n" if self._read_to else b""
        file.seek(self._read_to - len(known))
        if file.read(len(known)) != known:
            raise LedgerError(f"the ledger {self.path} has other lines than it had: it was replaced by another one")
        data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(line)
        self._read_to += len(whole)
        if len(whole) < len(data) and not self._read_only:
            file.truncate(self._read_to)
            os.fsync(file.fileno())

    def _append(self, file: Any, kind: str, values: dict[str, Any]) -> None:
        if self._read_only:
            raise LedgerError(f"the ledger {self.path} was opened to be looked at, and takes no charges")
        body = json.dumps({"kind": kind, "when": datetime.now(UTC).isoformat(timespec="seconds"), **values}).encode()
        secret = bytes.fromhex(values["secret"]) if kind == "ledger" else self._secret
        line = body + b" " + _link(secret, self._chain, body).hex().encode()
        file.seek(self._read_to)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
        self._take(line)
        self._read_to += len(line) + 1

    def _take(self, line: bytes) -> None:
        """Take in one whole line, or refuse the ledger."""
        try:
            body, _, link = line.rpartition(b" ")
            entry = json.loads(body)
            kind = entry["kind"]
            if kind == "ledger" and not self._secret and entry["format"] == _FORMAT:
                self._secret = bytes.fromhex(entry["secret"])
            chain = _link(self._secret, self._chain, body)
            if not self._secret or not hmac.compare_digest(chain.hex().encode(), link):
                raise ValueError("its digest does not fit")
            if kind == "budget":
                self._budget = check_budget(entry["epsilon"], entry["delta"])
            elif kind == "charge":
                cost = checked_cost(entry["mu2"], entry["rho"])
                self._charges.append(
                    Charge(entry["when"], entry["run"], entry["what"], entry["question"], cost, entry["epsilon"])
                )
                self._known.add(entry["question"])
            elif kind != "ledger":
                raise ValueError(f"{kind!r} is unknown")
            self._chain = chain
        except (ValueError, KeyError, TypeError) as error:
            number = 2 + len(self._charges) + (self._budget is not None)
            raise LedgerError(
                f"the ledger {self.path} is damaged or was tampered with, about line {number} ({error}): go back to a "
                "backup of the same age, or take its budget for spent and begin a new one"
            ) from None

    def _look(self) -> None:
        """Take in what other processes have written."""
        with self._locked():
            pass

    def _known_cost(self) -> Cost:
        total = Cost()
        for charge in self._charges:
            total += charge.cost
        return total

    @property
    def _known_budget(self) -> tuple[float, float]:
        assert self._budget is not None
        return self._budget


def _link(secret: bytes, before: bytes, body: bytes) -> bytes:
    return blake2b(before + b"\0" + body, key=secret, digest_size=16).digest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
