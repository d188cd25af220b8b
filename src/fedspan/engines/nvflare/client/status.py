"""The status of a federation: which sites are online, and what each reports about itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedspan.engines.nvflare.client.connect import START_LIMIT
from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from fedspan.engines.nvflare.client.user_session import UserSession
from fedspan.engines.nvflare.setup.kit import Kit, needs_nvflare, read_kit
from fedspan.engines.remote.coordinator.signed_requests import SignedRequests
from fedspan.engines.remote.coordinator.site_directory import SiteDirectory
from fedspan.engines.remote.messages.environment import differences
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.owner.admission import ANALYST


@dataclass(frozen=True)
class SiteStatus:
    """One site: whether it is connected and, where that was requested, what it reports about itself."""

    name: str
    online: bool
    version: str = ""
    rows: int | None = None
    columns: int | None = None
    steps: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class FederationStatus:
    """All sites of a federation, as a user sees them."""

    kit: Kit
    role: str
    sites: tuple[SiteStatus, ...]


def federation_status(path: str | Path) -> FederationStatus:
    """Request from the server which sites are online and, where the user's role allows it, the sites' reports."""
    needs_nvflare()
    kit = read_kit(path)
    kit.must_be("user", "'fedspan federation status'")
    user = Identity.from_kit(kit.path)
    if user.role != ANALYST:
        session = UserSession(kit)
        registered = session.registered()
        session.close()
        return FederationStatus(kit, user.role, tuple(SiteStatus(site, site in registered) for site in kit.sites))
    transport = NVFlareTransport(kit.path)
    try:
        online = sorted(transport.wait_for(None, START_LIMIT))
        directory = SiteDirectory(SignedRequests(transport, user, Authority.from_kit(kit.path)))
        if online:
            directory.refresh(online)
        sites = [
            _status(site, directory) if site in online else SiteStatus(site, False, remarks=(transport.why_not(site),))
            for site in kit.sites
        ]
        return FederationStatus(kit, user.role, tuple(sites))
    finally:
        transport.close()


def _status(site: str, directory: SiteDirectory) -> SiteStatus:
    """Return what a site has reported; none of it is verified but that the site has signed it."""
    report = directory.reports.get(site)
    if report is None:
        refused = directory.refused[site]
        return SiteStatus(site, True, refused.version, remarks=(refused.refused,))
    remarks = [f"has {difference}: the last bits may differ" for difference in differences(report.environment)]
    objection = directory.objection(site)
    remarks = [objection, *remarks] if objection else remarks
    return SiteStatus(site, True, report.version, report.rows, len(report.columns), report.allowed, tuple(remarks))
