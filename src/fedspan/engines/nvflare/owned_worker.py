"""The worker of a site as its owner has set it up: data and rules of ``site.toml``, certificate and disk of the kit."""

from __future__ import annotations

import json
from pathlib import Path

from fedspan.engines.owner import read_owned_site
from fedspan.engines.remote.envelope import Opened
from fedspan.engines.remote.identity import Authority, Identity
from fedspan.engines.remote.worker import SiteWorker
from fedspan.errors import InputError
from fedspan.wire import Message

#: Who may run steps, by the role in the certificate.
ROLES = ("analyst",)


class OwnedWorker:
    """Answers requests by the owner's rules, with the data as they are when nobody is in the middle of a run."""

    def __init__(self, kit: Path, config: Path) -> None:
        self._kit = kit
        self._identity = Identity.from_kit(kit)
        self._authority = Authority.from_kit(kit)
        self.owned = read_owned_site(config)
        if self.owned.site.name != self._identity.name:
            raise InputError(
                f"{config} names the site {self.owned.site.name!r}, and the kit is that of {self._identity.name!r}"
            )
        self._worker = self._make()

    def answer(self, request: bytes) -> bytes:
        """Answer one request."""
        return self._worker.answer(request)

    def refresh(self) -> None:
        """Read the data anew if they may have changed; go on with the old ones if they cannot be read now."""
        try:
            changed = self.owned.refresh()
        except InputError:
            return
        if changed:
            self._worker.close()
            self._worker = self._make()

    def in_words(self) -> str:
        """Say in a line what is here."""
        about = self.owned.describe()
        columns = len(about["columns"])
        return f"{about['name']}: {about['rows']:,} rows, {columns} columns; {len(about['steps'])} steps may be asked"

    def _make(self) -> SiteWorker:
        owned = self.owned

        class Worker(SiteWorker):
            """Tells who asks what the site is also what its owner lets others know."""

            def _hello(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
                told, parts = super()._hello(opened)
                return told, parts | {"owner": json.dumps(owned.describe()).encode()}

        return Worker(owned.site, self._kit / "runs", self._identity, self._authority, owned.guard, roles=ROLES)
