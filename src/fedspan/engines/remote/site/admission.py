"""A site's door: who may come in, and what is written about those who may not."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.identity import Who
from fedspan.engines.remote.messages.request_head import Head
from fedspan.engines.remote.site.refusals import refusal
from fedspan.errors import MessageError, PolicyError
from fedspan.owner.owner_request import Ask, Guard
from fedspan.wire import Message


@dataclass
class Asked:
    """A request as far as it is read, and whether data were looked at for it."""

    ask: Ask
    ran: bool = False


class Door:
    """Decides who may ask a site anything.

    Parameters
    ----------
    site : str
        Its name.
    guard : Guard
        The owner's rules.
    roles : names
        Who may run steps, by the role in the certificate.
    any_version : bool
        Let in also what comes from another version of fedspan.

    Attributes
    ----------
    closed : str
        Why nobody is let in at present, in a sentence that everybody may hear; empty while the door is open.
    """

    def __init__(self, site: str, guard: Guard, roles: Iterable[str], any_version: bool) -> None:
        self._site = site
        self._guard = guard
        self._roles = frozenset(roles)
        self._any_version = any_version
        self.closed = ""

    def check_sender(self, who: Who, head: Head) -> None:
        """Refuse what is not from a user of the federation to this site, in this version."""
        if not who.role:
            raise PolicyError(f"{who.name!r} is not a user of this federation: the certificate has no role")
        if self._site not in head.sites:
            raise MessageError(f"the message is for {', '.join(sorted(head.sites))[:200]}, not for {self._site}")
        mine = fedspan_version()
        if head.version != mine and not self._any_version and head.kind != "hello":
            raise PolicyError(f"this site runs fedspan {mine}, and the request comes from fedspan {head.version}")
        if self.closed:
            raise PolicyError(self.closed)

    def welcome(self, ask: Ask, what: str) -> None:
        """Refuse whoever may not ask this site anything, by role or by its owner's rules."""
        if ask.role not in self._roles:
            raise PolicyError(
                f"you are not among this site's users: {ask.who!r} has the role {ask.role!r}, which may not {what} at "
                "this site"
            )
        self._guard.welcome(ask)

    def refused(self, asked: Asked, error: Exception) -> Message:
        """Return what the asker is told of an error; write that down, and what is for the site's own log alone."""
        told = refusal(error)
        with suppress(Exception):  # it is refused anyway
            why = "; ".join([told["why"], *getattr(error, "__notes__", ())])
            self._guard.refused(asked.ask, why, told["kind"], asked.ran)
        return told
