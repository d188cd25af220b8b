"""The status of a federation: which sites are online, and what each reports about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedspan.engines.nvflare.client.connect import START_LIMIT
from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from fedspan.engines.nvflare.client.user_session import UserSession
from fedspan.engines.nvflare.setup.kit import Kit, needs_nvflare, read_kit
from fedspan.engines.remote.coordinator.signed_requests import SignedRequests
from fedspan.engines.remote.coordinator.site_directory import SiteDirectory, SiteReport
from fedspan.engines.remote.messages.environment import differences
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.owner.admission import ANALYST


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
    if user.role != ANALYST:
        session = UserSession(kit)
        registered = session.registered()
        session.close()
        return FederationStatus(kit, user.role, frozenset(registered), {}, {})
    transport = NVFlareTransport(kit.path)
    try:
        online = transport.wait_for(None, START_LIMIT)
        directory = SiteDirectory(SignedRequests(transport, user, Authority.from_kit(kit.path)))
        if online:
            directory.refresh(sorted(online))
        reports = directory.refused | directory.reports
        remarks = {site: [transport.why_not(site)] for site in kit.sites if site not in online}
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
