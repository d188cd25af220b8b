"""A federation of sites on other machines."""

from __future__ import annotations

import os
from pathlib import Path

from fedspan.checks import whole_number
from fedspan.engines.remote.coordinator.remote_engine import RemoteEngine
from fedspan.engines.remote.messages.delegation import Sender
from fedspan.engines.remote.messages.identity import Authority
from fedspan.engines.remote.messages.transport import Transport
from fedspan.federation import Federation, Policy, SecureSum
from fedspan.federation.federation import Root, View
from fedspan.secure_sum.sum_coordinator import SecureSummation


class RemoteFederation(Federation):
    """A federation whose sites are reached over a transport.

    Parameters
    ----------
    transport : Transport
    identity : Identity or Delegate
        The user's certificate and key, or one that speaks for the user.
    authority : Authority
        The federation's root.
    seed : int, default=0
        The seed of its runs, unless an estimator has a ``random_state``.
    policy : Policy, optional
        With ``quorum="all"`` a call waits for every site, until the run's own deadline. With a lower quorum the run
        goes on without a site that is away, and takes it back when it returns.
    run_dir : path, optional
        Keep each run's journal and record here: running the same thing again continues where it stopped. The sites'
        states are on their own disks.
    any_version : bool, default=False
        Work also with sites of another version of fedspan, if they do too.
    """

    def __init__(
        self,
        transport: Transport,
        identity: Sender,
        authority: Authority,
        seed: int = 0,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        any_version: bool = False,
    ) -> None:
        policy = policy or Policy()
        secure = policy.secure_sum if isinstance(policy.secure_sum, SecureSum) else None
        self.engine = RemoteEngine(transport, identity, authority, secure=secure, any_version=any_version)
        summation = None if secure is None else SecureSummation(secure)
        if summation is not None:
            summation.check_possible("a sum", len(self.engine.sites))
        folder = None if run_dir is None else Path(run_dir)
        root = Root(self.engine, whole_number("seed", seed, 0), policy, folder, summation)
        super().__init__(root, View(self.engine.sites))

    def close(self) -> None:
        """End the run of protocols that were called on the federation itself, and let go of the transport."""
        super().close()
        self.engine.close()
