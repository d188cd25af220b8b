"""The federation: a protocol requests steps at sites, and reads what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any, Self

import numpy as np

from fedspan.checks import first_of
from fedspan.errors import InputError, PolicyError, QuorumError
from fedspan.federation.calling import Calling, StepLike
from fedspan.federation.calls.corruption import Attack, Corruption
from fedspan.federation.calls.faults import FaultPlan
from fedspan.federation.notebook_html import fact_table
from fedspan.federation.outcomes import EndingKind, Failure, FailureKind
from fedspan.federation.policy import SecureSum
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import SIMULATED, RunRecord, plain
from fedspan.federation.replies import Replies
from fedspan.federation.run import Observer
from fedspan.federation.site.site import generator
from fedspan.federation.site.steps import dotted_name
from fedspan.federation.site.transforms import Transform
from fedspan.wire import Message


class Federation(Calling):
    """What a protocol receives.

    Protocols use `sites`, `rng`, `ask` (or `gather`), `sum`, `mean`, `merge`, `totals`, `sample`, `subset`, `rounds`,
    `log` and `stop`.
    Callers of protocols use `begin`, `run`, `apply`, `corrupt` and `with_faults`. The views that these return share the
    engine, and within a run its counter, generator and journal.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.sites)} site{'s' * (len(self.sites) != 1)}: {first_of(self.sites, 5)})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks; nothing is requested from the sites."""
        view, policy = self._view, self.policy
        facts: list[tuple[str, object]] = [("sites", f"{len(self.sites):,}: {first_of(self.sites, 8)}")]
        if view.transforms:
            facts.append(("rows seen through", ", ".join(one.id for one in view.transforms)))
        if view.conditions:
            facts.append(("attacks and faults", view.conditions))
        facts.append(("sums", "secure" if policy.secure_sum else "plain"))
        facts.append(("runs so far", self._root.runs))
        return fact_table(type(self).__name__, facts, SIMULATED if self._root.simulated and len(self.sites) > 1 else "")

    # What a protocol uses.

    @property
    def plain_transforms(self) -> tuple[str, ...]:
        """Ids of the transforms that see the rows without noise."""
        return tuple(one.id for one in takewhile(lambda one: not one.private, self._view.transforms))

    @property
    def record(self) -> RunRecord:
        """The record of the current run."""
        run = self._run
        if not run.record.versions:
            run.keep_versions()
        return run.record

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The sites of each group of the policy, by the group's name.

        The federation's seed decides the groups, and they are the same in all of its runs. Of two ways to divide the
        sites, the totals would reveal more than those of one.
        """
        sites = self._root.engine.sites
        drawn = np.array_split(generator(self._root.seed, "groups").permutation(len(sites)), self.policy.groups or 1)
        groups = {f"group {i + 1}": {sites[k] for k in members} for i, members in enumerate(drawn)}
        return {name: tuple(site for site in self.sites if site in members) for name, members in groups.items()}

    def totals(self, step: StepLike, /, **payload: object) -> Replies:
        """Run `step` at all sites; return every reply, or with ``Policy(groups=...)`` the secure sum of each group.

        For replies that are totals over rows, such as sums with their number of rows: that of a group is such a reply,
        too. A group whose sum fails, for too few sites or because a site spoils it, is missing, within the quorum.
        """
        if not self.policy.groups:
            return self.ask(step, **payload)
        ok: dict[str, Message] = {}
        failed: dict[str, Failure] = {}
        for name, sites in self.groups.items():
            try:
                ok[name] = dict(self.subset(sites).sum(step, **payload))
            except (InputError, PolicyError, QuorumError) as error:
                failed[name] = Failure(FailureKind.REJECTED, str(error), error)
        if len(ok) < self.policy.needed(len(self.groups)):
            raise next(failure.error for failure in failed.values() if failure.error is not None)
        return Replies(ok, failed)

    def sample(self, fraction: float) -> Federation:
        """Return a view of a random share of the sites: at least one, or the fewest of a secure sum."""
        if not 0 < fraction <= 1:
            raise InputError(f"sample({fraction!r}): the fraction must be above 0 and at most 1")
        secure = self.policy.secure_sum
        least = min(secure.least, len(self.sites)) if isinstance(secure, SecureSum) else 1
        count = max(least, round(fraction * len(self.sites)))
        chosen = self.rng.choice(len(self.sites), size=count, replace=False)
        return self.subset([self.sites[i] for i in chosen])

    def subset(self, names: Iterable[str]) -> Federation:
        """Return a view of the sites `names`."""
        return self._with(sites=self._recipients(names))

    def bounded(self, largest: float) -> Federation:
        """Return a view in which a site whose reply to `ask` holds a number of this magnitude or more has failed."""
        return self._with(largest=largest)

    def rounds(self, n: int) -> Iterator[int]:
        """Count up to `n` rounds from 0, until `stop` is called; they show in progress and record."""
        return self._run.rounds(n)

    def log(self, **metrics: object) -> None:
        """Keep named numbers or words in the record, with the current round."""
        self._run.log(metrics)

    def stop(self, reason: str, *, converged: bool = False) -> None:
        """State in words why the run stops, and end the loop over `rounds` with its current round."""
        self._run.stop(reason, EndingKind.CONVERGED if converged else EndingKind.STOPPED)

    def spent(self, privacy: PrivacySpent, *, again: bool = False) -> None:
        """Keep in the record what the run spends of the sites' privacy, in place of earlier reports if `again`."""
        self._run.spent(privacy, again)

    # What the caller of a protocol uses.

    @contextmanager
    def begin(
        self,
        what: str,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Federation]:
        """Begin a run of its own, and end it with the block; inside another run it is a part of that one."""
        if self._view.run is not None:
            yield self
            return
        run = self._new_run(what, plain(settings or {}), seed, tuple(observers))
        try:
            yield self._with(run=run)
        except BaseException as error:
            run.end(error)
            raise
        run.end()

    def run(self, protocol: Callable[..., Any], /, *, random_state: int | None = None, **settings: Any) -> Any:
        """Run ``protocol(federation, **settings)`` as a run of its own and return its result."""
        with self.begin(dotted_name(protocol), settings, random_state) as federation:
            return protocol(federation, **settings)

    def apply(
        self, transform: Callable[..., Any], /, *, columns: Iterable[str] | None = None, **parameters: object
    ) -> Federation:
        """Return a federation whose sites see their data through an installed transform (`fedspan.transform`).

        `columns` are the names that the transform was fitted on: a site that has others fails.
        """
        transforms = (*self._view.transforms, Transform.of(transform, parameters, columns))
        return self._with(transforms=transforms, names=None)

    def by_state(self) -> Federation:
        """Return a view for steps that use a site's state and no rows: parameters of transforms then do not travel.

        Transforms that add noise or select rows stay, since owners' rules and ledgers depend on them.
        """
        stay = any(one.private or one.selects for one in self._view.transforms)
        return self if stay else self._with(transforms=(), names=None)

    def named(self, names: Iterable[str]) -> Federation:
        """Return the federation with names for the columns that its last transform shows; the sites have none."""
        return self._with(names=tuple(names))

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the columns that the last transform shows, where they are known."""
        return self._view.names

    def corrupt(self, attack: Attack, sites: Iterable[str]) -> Federation:
        """Return a federation in which an attack writes the replies of `sites`.

        An attack is any callable ``attack(replies, bad, rng, call) -> {site: reply}``. It sees all honest replies, so
        that it can't be used where sums are secure. With groups of sites (``Policy(secure_sum=True, groups=...)``) an
        attack can be simulated in one process. It sees the replies of its group, and writes what its sites would mask.
        The groups' sums are added up in the clear, as the record then states.
        """
        if not callable(attack) or isinstance(attack, type):
            raise InputError(f"an attack is a callable, such as fedspan.attacks.SignFlip(), and not {attack!r}")
        secure = self.policy.secure_sum
        if not (self.policy.groups and self._root.simulated):
            self.need_single_replies("an attack")
        largest = secure.largest if isinstance(secure, SecureSum) else np.inf
        corruption = Corruption(attack, frozenset(self._recipients(sites)), largest)
        return self._with(corruptions=(*self._view.corruptions, corruption))

    def with_faults(self, plan: FaultPlan) -> Federation:
        """Return a federation whose messages suffer the faults of `plan`."""
        return self._with(faults=(*self._view.faults, plan))

    def observe(self, observer: Observer) -> None:
        """Report all runs that begin from now on to `observer`."""
        if not isinstance(observer, Observer):
            raise InputError(f"observe takes an Observer, such as fedspan.report.LivePage, and not {observer!r}")
        self._root.observers += (observer,)

    def close(self) -> None:
        """Release the files and site states of protocols that were called on the federation itself."""
        self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Inside.

    def _with(self, **changes: Any) -> Federation:
        return Federation(self._root, replace(self._view, **changes))
