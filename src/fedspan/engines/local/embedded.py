"""The embedded engine: all sites in this process. The default, and the reference for every other engine."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.checks import held, whole_number
from fedspan.engines.local.blas_threads import PinnedThreads, blas_threads
from fedspan.engines.local.site_threads import Batch
from fedspan.errors import BudgetError, InputError, MessageError, PolicyError
from fedspan.federation import Federation, Policy, SecureSum, Site
from fedspan.federation.calling import Root, View
from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.call_context import OversizeError
from fedspan.federation.site.row_stream import RowStream
from fedspan.federation.site.site import checked_names
from fedspan.federation.site.site_data import as_pandas
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.state import Changes
from fedspan.federation.site_labels import site_rows
from fedspan.privacy.ledger import SimulatedLedger
from fedspan.secure_sum.sum_coordinator import SecureSummation
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import decode, encode, encoded

#: Of one job at a time, deadlines of at least this number of seconds are checked after each step, in the caller's
#: thread. A shorter one may be meant for steps that hang: they run in a thread that can be given up.
_CHECKED_AFTERWARDS = 60.0
#: Seconds that a call has by default where rows are streamed: a pass over a table of any size.
_STREAM_DEADLINE = 86_400.0


class LocalEngine:
    """Runs calls at sites of this process (see `LocalFederation` for the parameters)."""

    def __init__(self, sites: Iterable[Site], n_jobs: int = 1, wire: bool = False) -> None:
        hosts = [SiteHost(site, simulated=SimulatedLedger) for site in sites]
        self.sites = checked_names([host.site.name for host in hosts])
        self.n_jobs = _checked_jobs(n_jobs)
        self.wire = wire
        self._hosts = {host.site.name: host for host in hosts}
        self._overdue: dict[str, tuple[int, Batch[Outcome]]] = {}  # by site: the call that it still runs
        self._pinned: dict[str, PinnedThreads] = {}

    def describe(self) -> dict[str, Any]:
        """Return the sites' data shapes, their numbers of rows, and the number of BLAS threads."""
        sites = {name: self._hosts[name].site for name in self.sites}
        return {
            "sites": {name: site.fingerprint() for name, site in sites.items()},
            "rows": {name: len(site) for name, site in sites.items()},
            "threads": blas_threads(),
        }

    @property
    def advice(self) -> tuple[str, ...]:
        """A resumed run keeps its number of BLAS threads, which changes the last bits of a result."""
        return ("threads",)

    def begin(self, name: str, head: Mapping[str, Any] | None) -> str:
        """Use the number of BLAS threads that the journal's head states."""
        if head is not None:
            self._pinned[name] = PinnedThreads(int(head.get("threads", 1)))
        return name

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`, each within the deadline."""
        self._overdue = {
            name: (number, batch) for name, (number, batch) in self._overdue.items() if name in batch.overdue
        }
        outcomes: dict[str, Outcome] = {
            name: Failure(FailureKind.LATE, f"still busy with call {self._overdue[name][0]}")
            for name in to
            if name in self._overdue
        }
        sent_to_all = call.payload
        if self.wire:
            if not call.apart:
                sent_to_all = decode(encoded(call.payload), policy.max_bytes)  # read-only, and so the same for all
            transforms = [
                replace(transform, parameters=decode(encode(transform.parameters), policy.max_bytes))
                for transform in call.transforms
            ]
            call = replace(call, transforms=tuple(transforms))

        def perform(name: str) -> Delivery:
            message = sent_to_all
            if call.apart:
                message = call.payload_of(name)
                message = decode(encoded(message), policy.max_bytes) if self.wire else message
            host = self._hosts[name]
            host.largest = policy.max_bytes
            vault = host.vault
            if call.how != "ask":  # plain sums: where sums are secure, a simulated attack (`Federation.corrupt`)
                host.vault = None
            try:
                delivery = host.perform(call, message, accepted.get(name, -1))
            finally:
                host.vault = vault
            if self.wire:
                sent = encoded(delivery.reply)
                delivery.reply = decode(sent, len(sent))
            return delivery

        def perform_or_fail(name: str) -> Outcome:
            try:
                return perform(name)
            except BaseException as error:
                return step_failure(call.step.id, error)

        ready = [name for name in to if name not in outcomes]
        if self.n_jobs == 1 and policy.deadline >= _CHECKED_AFTERWARDS:
            return outcomes | _in_turn(ready, perform, call.step.id, policy.deadline)
        batch = Batch(ready, perform_or_fail, policy.deadline)
        batch.run(self.n_jobs)
        for name in ready:
            outcomes[name] = batch.results.get(name) or _late(policy.deadline)
        self._overdue.update((name, (call.number, batch)) for name in batch.overdue.copy())
        for outcome in outcomes.values():
            if isinstance(outcome, Failure) and not isinstance(outcome.error, Exception | None):
                raise outcome.error  # an interrupt or an exit is meant for the whole process, not for one site
        return outcomes

    def introduce(self, settings: SecureSum) -> None:
        """Give every site the public keys of all and the settings of secure sums, and let it answer by these only."""
        for name, host in self._hosts.items():
            host.vault = Vault(filling=name.encode())  # no secret: repeated runs have the same bits
        keys = {name: host.vault.public for name, host in self._hosts.items()}
        for host in self._hosts.values():
            host.vault.introduce(keys)
            host.vault.take(settings)
            host.vault.sums_only = True

    def restore(self, call: Call, changes: Mapping[str, Changes], accepted: Mapping[str, int], policy: Policy) -> None:
        """Apply to a site's state what the journal records for call `number`."""
        for site, changed in changes.items():
            self._hosts[site].restore(call.run, call.number, changed)

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Return False: no embedded site is ever offline; a late one has failed."""
        return False

    def end(self, run: str, sites: Sequence[str], resumable: bool) -> None:
        """Drop the run's states, which the journal has, and restore the number of BLAS threads."""
        for site in sites:
            self._hosts[site].forget(run)
        if run in self._pinned:
            self._pinned.pop(run).release()


def _in_turn(
    names: Sequence[str], perform: Callable[[str], Delivery], step: str, deadline: float
) -> dict[str, Outcome]:
    """Run a call at one site after the other, in this thread; a reply that took longer than the deadline is late.

    An interrupt or an exit is meant for the whole process, not for one site.
    """
    outcomes: dict[str, Outcome] = {}
    clock = time.perf_counter
    now = clock()
    for name in names:
        began = now
        try:
            outcomes[name] = perform(name)
        except Exception as error:
            outcomes[name] = step_failure(step, error)
        now = clock()
        if now - began > deadline:
            outcomes[name] = _late(deadline)
    return outcomes


def _late(deadline: float) -> Failure:
    return Failure(FailureKind.LATE, f"no reply within {deadline:g} s")


def step_failure(step: str, error: BaseException) -> Failure:
    """Return the failure of a step at a site of this process, whose owner may read the error's text."""
    if isinstance(error, BudgetError):
        return Failure(FailureKind.BUDGET_SPENT, str(error), error, error.facts)
    kinds = {OversizeError: FailureKind.OVERSIZE, PolicyError: FailureKind.REFUSED, MessageError: FailureKind.MALFORMED}
    for kind, name in kinds.items():
        if isinstance(error, kind):
            return Failure(name, str(error), error)
    text = " ".join(str(error).split())[:300]
    return Failure(FailureKind.STEP_FAILED, f"step {step!r} raised {type(error).__name__}: {text}", error)


class LocalFederation(Federation):
    """A federation whose sites are in this process.

    Parameters
    ----------
    sites : sequence of Site
    seed : int, default=0
        The seed of its runs, unless an estimator has a ``random_state``.
    n_jobs : int, default=1
        Threads that run steps; -1 for one per processor. Results do not depend on it. One job runs in the caller's
        thread, unless the policy's deadline is below a minute: then steps that hang can be given up.
    wire : bool, default=False
        Send every message through the wire format, as a real federation does. Results do not depend on it.
    policy : Policy, optional
        Default: ``Policy()``; where rows are streamed (`fedspan.stream`) a call may take a day: it may read them all.
    run_dir : path, optional
        Keep each run's journal and record here: the same run begun again continues where it stopped.

    Examples
    --------
    >>> from fedspan.federation import step
    >>> @step
    ... def count(site):
    ...     return {"n": len(site)}
    >>> fed = LocalFederation([Site("a", np.zeros((3, 2))), Site("b", np.zeros((4, 2)))])
    >>> fed.sum(count)["n"]
    7
    """

    def __init__(
        self,
        sites: Iterable[Site],
        seed: int = 0,
        n_jobs: int = 1,
        wire: bool = False,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        sites = list(sites)
        for site in sites:
            if not isinstance(site, Site):
                raise InputError(
                    f"a federation is made of sites, and {type(site).__name__} is not one: use fedspan.Site(name, X)"
                )
        seed = whole_number("seed", seed, 0)
        engine = LocalEngine(_in_one_order(sites), n_jobs, wire)
        summation = None
        if policy is not None and isinstance(policy.secure_sum, SecureSum):
            summation = SecureSummation(policy.secure_sum)
            summation.check_possible(*policy.smallest_sum(len(engine.sites)))
            engine.introduce(policy.secure_sum)
        folder = None if run_dir is None else Path(run_dir)
        usual = Policy(deadline=_STREAM_DEADLINE) if any(site.streamed for site in sites) else Policy()
        root = Root(engine, seed, policy or usual, folder, summation, simulated=True)
        super().__init__(root, View(engine.sites))


def federate(
    X: Any, y: Any = None, *, sites: Any = None, task: Any = None, sample_weight: Any = None, **kwargs: Any
) -> LocalFederation:
    """Make an embedded federation of one table or of one table per site.

    Parameters
    ----------
    X : array (n, ...), data frame, path, or mapping of tables
        One table, or the table of each site by the site's name. A table is an array, a data frame, the path of a file
        (see `fedspan.datasets.sources`), or a stream (`fedspan.stream`). Columns with names are matched by them,
        whatever their order.
    y, task, sample_weight : array (n,), or str, optional
        Target, task and weight of each row; or the name of a column of X, which is then no feature.
    sites : array (n,), or str, optional
        The site of each row, or the name of the column that holds it. Sites are named by ``str(label)``. Default: all
        rows are at one site.
    **kwargs
        For `LocalFederation`.

    Examples
    --------
    >>> federate(np.eye(3), sites=["b", "a", "b"]).sites
    ('a', 'b')
    >>> federate({"north": np.eye(3), "south": np.eye(3)}).sites
    ('north', 'south')
    """
    if isinstance(X, Mapping) and not hasattr(X, "tocsr"):  # a sparse matrix can be a dict of its entries
        columns = {"y": y, "task": task, "sample_weight": sample_weight}
        return LocalFederation(_sites_of_tables(X, columns, sites), **kwargs)
    if isinstance(X, list | tuple) and any(hasattr(one, "columns") for one in X):
        raise InputError("X is a list of tables: name the site of each, as in federate({'north': table, ...})")
    X = as_pandas(_read(X))
    wanted = {"y": y, "task": task, "sample_weight": sample_weight}
    wanted = {what: held(what, values) for what, values in wanted.items()} | {"sites": sites}
    X, (y, task, weights, sites) = _without_columns(X, wanted)
    if sites is None:
        return LocalFederation([Site("site", X, y, task, sample_weight=weights)], **kwargs)
    if not hasattr(X, "shape") and not hasattr(X, "__len__"):
        raise InputError(f"X is of the type {type(X).__name__}, and must be a table of rows and columns, or its file")
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    for what, values in {"y": y, "task": task, "sample_weight": weights}.items():
        shape = values.shape if hasattr(values, "shape") else np.shape(values)
        if values is not None and (shape[:1] != (rows,) or (what == "sample_weight" and len(shape) > 1)):
            raise InputError(f"{what} has the shape {shape}, and must be one value for each of {rows} rows")
    parts = [
        Site(name, _rows(X, index), _rows(y, index), _rows(task, index), sample_weight=_rows(weights, index))
        for name, index in site_rows(sites, rows).items()
    ]
    return LocalFederation(parts, **kwargs)


def _sites_of_tables(tables: Mapping[Any, Any], columns: Mapping[str, Any], sites: Any) -> list[Site]:
    """Return one site for each table, or for each path of one."""
    if sites is not None:
        raise InputError("sites=... goes with one table: in a dict of tables the keys name the sites")
    for what, values in columns.items():
        if values is not None and not isinstance(values, str):
            raise InputError(f"{what}=... must be the name of a column where X is a dict of tables")
    found = []
    for name, given in tables.items():
        table = _read(given)
        if isinstance(table, RowStream):
            found.append(Site(str(name), table, columns["y"], columns["task"], sample_weight=columns["sample_weight"]))
            continue
        X, (y, task, weights) = _without_columns(as_pandas(table), columns, f"site {str(name)!r}")
        found.append(Site(str(name), X, y, task, sample_weight=weights))
    return found


def _read(table: Any) -> Any:
    """Return a table, read from its file where it is a path."""
    if not isinstance(table, str | os.PathLike):
        return table
    from fedspan.datasets.sources import read_as_shown  # loads scikit-learn

    return read_as_shown(Path(table))


def _without_columns(X: Any, wanted: Mapping[str, Any], whose: str = "X") -> tuple[Any, list[Any]]:
    """Return `X` without the columns that `wanted` names, and `wanted` with values in place of names."""
    names = {what: value for what, value in wanted.items() if isinstance(value, str)}
    if not names:
        return X, list(wanted.values())
    columns = [str(column) for column in X.columns] if hasattr(X, "columns") else None
    for what, name in names.items():
        if columns is None:
            raise InputError(f"{what}={name!r} names a column, and {whose} is not a data frame: it has no names")
        if columns.count(name) != 1:
            raise InputError(
                f"{what}={name!r}: {whose} has {columns.count(name) or 'no'} columns of that name, and one is needed. "
                f"Columns: {', '.join(columns[:20])}{', ...' if len(columns) > 20 else ''}"
            )
    columns = columns or []
    values = [X.iloc[:, columns.index(value)] if what in names else value for what, value in wanted.items()]
    kept = [number for number, column in enumerate(columns) if column not in names.values()]
    return X.iloc[:, kept], values


def _rows(values: Any, index: Any) -> Any:
    if values is None:
        return None
    if hasattr(values, "tocsr"):
        return values.tocsr()[index]
    return values.iloc[index] if hasattr(values, "iloc") else np.asarray(values)[index]


def _in_one_order(sites: Sequence[Site]) -> list[Site]:
    """Return the sites with frames of the same columns in one order: that of most, or of the first by name."""
    orders = Counter(site.feature_names for site in sorted(sites, key=lambda site: site.name) if site.feature_names)
    chosen: dict[frozenset[str], tuple[str, ...]] = {}
    for names, _ in orders.most_common():
        chosen.setdefault(frozenset(names), names)
    return [site.in_order(chosen[frozenset(site.feature_names)]) if site.feature_names else site for site in sites]


def _checked_jobs(n_jobs: int) -> int:
    if n_jobs == -1:
        return os.cpu_count() or 1
    return whole_number("n_jobs", n_jobs, 1, why=", or -1 for one thread per processor")
