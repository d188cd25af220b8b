"""The worker of a site as its owner has set it up: data and rules of ``site.toml``, certificate and disk of the kit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.setup.console_events import NewEvents
from fedspan.engines.nvflare.setup.kit import read_kit, write_json
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.errors import FedspanError, InputError
from fedspan.owner import OwnedSite, read_owned_site

#: Seconds between two attempts to read what could not be read.
PAUSE = 2.0

#: What senders learn while the site is closed; the reason is for its owner alone.
CLOSED = "this site is closed until its data and its owner's file can be read again; its owner has been notified"


class OwnedWorker:
    """Answers requests by the owner's rules.

    The data are read when it is made, and again by `refresh`, between runs: a file if it was written since, a query
    always. The owner's file is checked before every answer, and where it has changed all is read again. A run continues
    if its rows are still the same. A deleted table is served no longer, not even to a run in progress.

    Where something can't be read, the site is closed: it answers nothing, and never from old rows, until it can be read
    again.

    Parameters
    ----------
    kit : path
        The site's.
    config : path
        The owner's ``site.toml``.
    notify : callable, optional
        Receives a sentence for the owner: the site was closed and why, or it is open again.
    """

    def __init__(self, kit: Path, config: Path, notify: Callable[[str], None] = lambda line: None) -> None:
        self._kit = kit
        self._config = config
        self._notify = notify
        self._events = NewEvents(to=notify)
        self._identity = Identity.from_kit(kit)
        self._authority = Authority.from_kit(kit)
        self._turn = threading.Condition()
        self._answering = 0
        self._next_attempt = 0.0
        self._seen = self._stamp()
        self._use(self._read())

    @property
    def closed(self) -> bool:
        """Whether it answers nothing."""
        return bool(self._worker.admission.closed)

    def answer(self, request: bytes | memoryview) -> bytes:
        """Answer one request."""
        with self._turn:
            if self._is_due():
                self._turn.wait_for(lambda: not self._answering)
                if self._is_due():  # unless another thread has read it meanwhile
                    self._read_again(everything=True)
            worker = self._worker
            self._answering += 1
        try:
            return worker.answer(request)
        finally:
            with self._turn:
                self._answering -= 1
                self._turn.notify_all()

    def refresh(self) -> None:
        """Read what has changed in the data. For the time between runs."""
        with self._turn:
            self._turn.wait_for(lambda: not self._answering)
            self._read_again(everything=self.closed or self._stamp() != self._seen)

    def in_words(self) -> str:
        """Describe the site in a line."""
        about = self._owned.describe()
        return (
            f"{about['name']}: {about['rows']:,} rows, {len(about['columns'])} columns; "
            f"{len(about['steps'])} steps are allowed"
        )

    def close(self) -> None:
        """Release the site's disk."""
        self._worker.close()

    def _is_due(self) -> bool:
        if self.closed and time.monotonic() > self._next_attempt:
            return True
        return self._stamp() != self._seen or (not self.closed and self._owned.file.data.source.gone())

    def _read_again(self, *, everything: bool) -> None:
        was_closed, seen = self.closed, self._stamp()
        try:
            owned = self._read() if everything else self._owned
            changed = everything or owned.refresh()
        except (FedspanError, OSError) as error:
            self._worker.admission.closed = CLOSED
            self._next_attempt = time.monotonic() + PAUSE
            if not was_closed or seen != self._seen:
                self._notify(f"closed, nothing is answered: {error}")
                self._publish({"closed": f"The site is closed, and answers nothing: {error}"})
            self._seen = seen
            return
        self._seen = seen
        if changed:
            self._worker.close()
            self._use(owned)
            self._notify(f"{'open again' if was_closed else 'read again'}: {self.in_words()}")

    def _read(self) -> OwnedSite:
        owned = read_owned_site(self._config, read_kit(self._kit).schema)
        if owned.site.name != self._identity.name:
            raise InputError(
                f"{self._config} names the site {owned.site.name!r}, and the kit is that of {self._identity.name!r}"
            )
        return owned

    def _use(self, owned: OwnedSite) -> None:
        self._owned = owned
        self._publish(owned.describe())
        self._worker = SiteWorker(
            owned.site, self._kit / "runs", self._identity, self._authority, owned.admission, owned.describe
        )
        self._worker.notify = self._events.report

    def _publish(self, about: dict[str, Any]) -> None:
        """Leave in the kit what the owner's page shows of the data: names, kinds and counts."""
        with suppress(OSError):  # a full disk does not close the site
            write_json(self._kit / "about.json", about)

    def _stamp(self) -> object:
        """Return a value that changes with the owner's file, and with the federation's settings."""
        listed = self._authority.members
        settings = listed and (listed.schema, list(listed.schema or ()), listed.secure_sum)
        try:
            found = self._config.stat()
        except OSError:
            return None, settings
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns), settings
