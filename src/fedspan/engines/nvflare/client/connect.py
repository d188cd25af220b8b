"""``fs.connect``: a federation of real sites, for a user with a kit; and its status."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedspan.engines.members.member_list import ends_soon
from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from fedspan.engines.nvflare.client.user_session import DeniedError
from fedspan.engines.nvflare.setup.kit import Kit, needs_nvflare, read_kit
from fedspan.engines.nvflare.setup.provision import check_own
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.coordinator.signed_requests import SignedRequests
from fedspan.engines.remote.coordinator.site_directory import SiteDirectory, SiteReport
from fedspan.engines.remote.messages.environment import differences
from fedspan.engines.remote.messages.identity import Authority, Identity, Signer
from fedspan.errors import FedspanError
from fedspan.federation import Policy
from fedspan.owner.admission import ANALYST

#: Seconds to wait for sites that are connected to the server, when a user connects, and seconds without a sentence.
START_LIMIT, SILENT = 60.0, 10.0

_log = logging.getLogger(__name__)


def connect(
    kit: str | os.PathLike[str],
    *,
    seed: int = 0,
    policy: Policy | None = None,
    run_dir: str | os.PathLike[str] | None = None,
) -> RemoteFederation:
    """Connect to the sites of a federation: estimators fitted on the result run at them, unchanged.

    Warns, in one sentence each, of sites whose libraries or processor differ from those here. Warns also of columns
    that hold numbers at one site and text or times at another.

    Parameters
    ----------
    kit : path
        The user's kit, as ``fedspan user enroll`` and ``join`` made it.
    seed : int, default=0
        The seed of its runs, unless an estimator has a ``random_state``.
    policy : Policy, optional
        Deadline, quorum, largest message. With ``quorum="all"`` a run waits for an offline site.
    run_dir : path, optional
        Keep each run's journal and record here: running the same study again continues where it stopped.

    Returns
    -------
    RemoteFederation
        Close it, or use it in a ``with`` statement.
    """
    needs_nvflare()
    path = read_kit(kit).path
    check_own(path)
    user = Identity.from_kit(path)
    if soon := ends_soon(path):
        warnings.warn(soon, stacklevel=2)
    if user.role != ANALYST:
        raise DeniedError(f"{user.name!r} has the role {user.role!r}, which may not run steps")
    return connect_as(user, Authority.from_kit(path), path, seed, policy, run_dir)


def connect_as(
    signer: Signer,
    authority: Authority,
    kit: Path,
    seed: int,
    policy: Policy | None,
    run_dir: str | os.PathLike[str] | None,
) -> RemoteFederation:
    """Connect with `kit`, and let `signer` sign the requests."""
    transport = NVFlareTransport(kit)
    try:
        if not transport.wait_for(None, SILENT):
            _log.warning("waiting for sites, at most %g seconds: %s", START_LIMIT - SILENT, _why_none(transport))
            if not transport.wait_for(None, START_LIMIT - SILENT):
                raise FedspanError(f"no site can be reached: {_why_none(transport)}")
        federation = RemoteFederation(transport, signer, authority, seed, policy, run_dir)
        federation.engine.reports()  # warns now, before a run begins
        return federation
    except BaseException:
        transport.close()
        raise


def _why_none(transport: NVFlareTransport) -> str:
    return "; ".join(dict.fromkeys(transport.why_not(site) for site in transport.sites))


@dataclass(frozen=True)
class FederationStatus:
    """A federation as a user with this role sees it: the sites online, reports and remarks, by site.

    Only the signature of a report is verified.
    """

    kit: Kit
    role: str
    online: frozenset[str]
    reports: Mapping[str, SiteReport]
    remarks: Mapping[str, list[str]]


def federation_status(path: str | Path) -> FederationStatus:
    """Request from the server which sites are online and, where the user's role allows it, the sites' reports."""
    needs_nvflare()
    kit = read_kit(path)
    kit.must_be("user", "'fedspan federation status'")
    user = Identity.from_kit(kit.path)
    transport = NVFlareTransport(kit.path)
    try:
        online = transport.wait_for(None, SILENT)
        kit = read_kit(kit.path)  # the list may be a newer one now
        remarks = {site: [transport.why_not(site)] for site in kit.sites if site not in online}
        if user.role != ANALYST:
            return FederationStatus(kit, user.role, online, {}, remarks)
        directory = SiteDirectory(SignedRequests(transport, user, Authority.from_kit(kit.path)))
        if online:
            directory.refresh(sorted(online))
        reports = directory.refused | directory.reports
        for site, report in reports.items():
            differ = differences(report.environment) if not report.refused else []
            found = [
                report.refused,
                directory.objection(site),
                *(f"has {one}: the last bits may differ" for one in differ),
            ]
            remarks[site] = [remark for remark in found if remark]
        return FederationStatus(kit, user.role, online, reports, remarks)
    finally:
        transport.close()
