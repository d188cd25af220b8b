"""The worker of a site as its owner has set it up: data and rules of ``site.toml``, certificate and disk of the kit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.nvflare.site.owned_site_worker import OwnedSiteWorker
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import FedspanError, InputError
from fedspan.owner import OwnedSite, read_owned_site

#: Seconds between two attempts to read what could not be read.
PAUSE = 2.0


class OwnedWorker:
    """Answers requests by the owner's rules.

    The data are read when it is made, and again by `refresh`, when a run begins and nobody else is in the middle of
    one: a file if it was written to since, a query always. The owner's file counts at once: it is looked at before
    every answer, and where it has changed all is read anew. A run goes on if its rows are still the same, and is
    refused otherwise. A table that was deleted is not served any more, run or no run.

    Where something cannot be read, the site is closed: it answers nothing, least of all from old rows, until it can be
    read again.

    Parameters
    ----------
    kit : path
        The site's.
    config : path
        The owner's ``site.toml``.
    tell : callable, optional
        Is told, in a sentence, that the site was closed and why, and that it is open again.
    """

    def __init__(self, kit: Path, config: Path, tell: Callable[[str], None] = lambda line: None) -> None:
        self._kit = kit
        self._config = config
        self._tell = tell
        self._identity = Identity.from_kit(kit)
        self._authority = Authority.from_kit(kit)
        self._turn = threading.Condition()
        self._inside = 0  # answers that are being given
        self._next_try = 0.0
        self._seen = self._stamp()
        self._worker = self._make(self._read())

    @property
    def owned(self) -> OwnedSite:
        """The site that is served."""
        return self._worker.owned

    @property
    def closed(self) -> bool:
        """Whether it answers nothing."""
        return self._worker.closed

    def answer(self, request: bytes) -> bytes:
        """Answer one request."""
        with self._turn:
            if self._is_due():
                self._turn.wait_for(lambda: not self._inside)
                if self._is_due():  # unless somebody else has seen to it meanwhile
                    self._read_anew(all_of_it=True)
            worker = self._worker
            self._inside += 1
        try:
            return worker.answer(request)
        finally:
            with self._turn:
                self._inside -= 1
                self._turn.notify_all()

    def refresh(self) -> None:
        """See what has changed in the data. For the time when nobody is in the middle of a run."""
        with self._turn:
            self._turn.wait_for(lambda: not self._inside)
            self._read_anew(all_of_it=self.closed or self._stamp() != self._seen)

    def in_words(self) -> str:
        """Say in a line what is here."""
        about = self.owned.describe()
        columns = len(about["columns"])
        return f"{about['name']}: {about['rows']:,} rows, {columns} columns; {len(about['steps'])} steps may be asked"

    def _is_due(self) -> bool:
        if self.closed and time.monotonic() > self._next_try:
            return True
        return self._stamp() != self._seen or (not self.closed and self.owned.file.data.source.gone())

    def _read_anew(self, *, all_of_it: bool) -> None:
        was_closed, seen = self.closed, self._stamp()
        try:
            owned = self._read() if all_of_it else self.owned
            changed = all_of_it or owned.refresh()
        except (FedspanError, OSError) as error:
            self._worker.close_the_door()
            self._next_try = time.monotonic() + PAUSE
            if not was_closed or seen != self._seen:
                self._tell(f"closed, nothing is answered: {error}")
            self._seen = seen
            return
        self._seen = seen
        if changed:
            self._worker.close()
            self._worker = self._make(owned)
            self._tell(f"{'open again' if was_closed else 'read anew'}: {self.in_words()}")

    def _read(self) -> OwnedSite:
        owned = read_owned_site(self._config, read_kit(self._kit).schema)
        if owned.site.name != self._identity.name:
            raise InputError(
                f"{self._config} names the site {owned.site.name!r}, and the kit is that of {self._identity.name!r}"
            )
        return owned

    def _make(self, owned: OwnedSite) -> OwnedSiteWorker:
        return OwnedSiteWorker(owned, self._kit / "runs", self._identity, self._authority)

    def _stamp(self) -> object:
        """Return what is the same as long as the owner's file is."""
        try:
            found = self._config.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
