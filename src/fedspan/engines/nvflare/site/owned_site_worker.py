"""A site's worker that speaks for its owner: says what the owner lets others know, and nothing while it is closed."""

from __future__ import annotations

import json
from pathlib import Path

from fedspan.engines.remote.messages.envelope import Opened
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.owner import OwnedSite
from fedspan.wire import Message

#: Who may run steps, by the role in the certificate.
ROLES = ("analyst",)
CLOSED = "this site is closed until its data and its owner's file can be read again; its owner has been told"


class OwnedSiteWorker(SiteWorker):
    """Answers for one `OwnedSite`, while it is open."""

    def __init__(self, owned: OwnedSite, folder: Path, identity: Identity, authority: Authority) -> None:
        super().__init__(owned.site, folder, identity, authority, owned.guard, roles=ROLES)
        self.owned = owned

    @property
    def closed(self) -> bool:
        """Whether everything is refused, with a sentence that says no more: what is wrong is the owner's to know."""
        return bool(self.door.closed)

    def close_the_door(self) -> None:
        """Answer nothing from now on."""
        self.door.closed = CLOSED

    def _hello(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        told, parts = super()._hello(opened)
        return told, parts | {"owner": json.dumps(self.owned.describe()).encode()}
