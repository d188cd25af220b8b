"""Who of a federation is there, and what each site says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from fedspan.engines.nvflare.client.user_session import COMMAND_LIMIT, Session
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.engines.nvflare.setup.provision import certificate_role
from fedspan.engines.nvflare.setup.requirements import needs_nvflare
from fedspan.engines.remote.coordinator.signed_requests import Post
from fedspan.engines.remote.messages.envelope import Opened
from fedspan.engines.remote.messages.environment import differences, fedspan_version
from fedspan.engines.remote.messages.identity import Authority, Identity

_START_LIMIT, _LARGEST = 60.0, 2**20


@dataclass(frozen=True)
class SiteStatus:
    """One site: whether it is connected, and what it says of itself where it was asked."""

    name: str
    online: bool
    version: str = ""
    rows: int | None = None
    columns: int | None = None
    steps: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    remarks: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class FederationStatus:
    """All sites of a federation, as a user sees them."""

    kit: Kit
    role: str
    sites: tuple[SiteStatus, ...]


def federation_status(path: str | Path) -> FederationStatus:
    """Ask the server who is there and, where the user's role allows it, each site what it is."""
    needs_nvflare()
    kit = read_kit(path)
    kit.must_be("user", "'fedspan federation status'")
    role = certificate_role(kit.path / "startup" / "client.crt")
    if role != "analyst":
        session = Session(kit)
        there = session.registered()
        session.close()
        return FederationStatus(kit, role, tuple(SiteStatus(site, site in there) for site in kit.sites))
    transport = NVFlareTransport(kit.path)
    try:
        online = transport.wait_for(None, _START_LIMIT)
        post = Post(transport, Identity.from_kit(kit.path), Authority.from_kit(kit.path), lambda site, reason: None)
        answers = post.send("hello", "", {}, {}, sorted(online), COMMAND_LIMIT, _LARGEST) if online else {}
        sites = [_of(site, answers.get(site), transport.why_not(site)) for site in kit.sites]
        return FederationStatus(kit, role, tuple(sites))
    finally:
        transport.close()


def _of(site: str, answer: Any, why_not: str) -> SiteStatus:
    """Return what a site has said; nothing of it is believed but that the site has signed it."""
    if answer is None:
        return SiteStatus(site, False, remarks=(why_not,))
    if not isinstance(answer, Opened) or answer.head["kind"] != "about":
        why = getattr(answer, "reason", None) or getattr(answer, "head", {}).get("why") or str(answer)
        return SiteStatus(site, True, remarks=(str(why),))
    about = json.loads(bytes(answer.parts["about"]))
    version = str(about["version"])
    if "stranger" in about:
        return SiteStatus(site, True, version, remarks=(str(about["stranger"]),))
    owner = json.loads(bytes(answer.parts["owner"]))
    remarks = [f"has {difference}: the last bits may differ" for difference in differences(about["environment"])]
    if version != fedspan_version():
        remarks.insert(0, f"runs fedspan {version}, and this is fedspan {fedspan_version()}: use one version")
    steps, rules = tuple(map(str, owner["steps"])), tuple(map(str, owner["rules"]))
    return SiteStatus(site, True, version, int(owner["rows"]), len(owner["columns"]), steps, rules, tuple(remarks))
