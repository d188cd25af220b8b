"""A user's session with the federation's server: the few commands that are needed, and what their failures mean."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fedspan.engines.nvflare.setup.console_events import REFUSED
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.errors import FedspanError

#: The channels of messages between users and the hub, and between the hub and sites.
CHANNEL, SITE_CHANNEL = "fedspan", "fedspan-site"

#: Seconds that the server has for a login (it may just be starting, on a busy machine), and for one command.
LOGIN_LIMIT, COMMAND_LIMIT = 20.0, 10.0

#: Seconds that NVIDIA FLARE's last attempt of a login takes, and seconds for the logout.
_LAST_ATTEMPT, _LOGOUT = 3.0, 3.0


class ServerOfflineError(FedspanError):
    """The federation's server does not answer."""


class DeniedError(FedspanError):
    """The federation's server refuses this user or this command."""


class UserSession:
    """One login. Every command raises `ServerOfflineError` or `DeniedError`, or returns."""

    def __init__(self, kit: Kit, limit: float = COMMAND_LIMIT, login: float = LOGIN_LIMIT) -> None:
        from nvflare.fuel.flare_api.api_spec import InternalError
        from nvflare.fuel.flare_api.flare_api import Session

        from fedspan.engines.nvflare.setup import handshake

        _quiet()
        handshake.install()
        self._flare = self._guard(Session, kit.name, str(kit.path), True)
        self._flare.api._print_hci = lambda message: None  # nothing is printed into a notebook
        self._limit = limit
        self._flare.set_timeout(limit)
        try:
            self._guard(within, login, self._flare.try_connect, max(1.0, login - _LAST_ATTEMPT))
        except InternalError as error:
            self.close()
            raise ServerOfflineError(f"the federation's server accepts no logins now: {error}") from None
        except BaseException:
            self.close()
            raise

    def request(self, channel: str, message: Any, limit: float) -> dict[str, Any]:
        """Send the server a message and return its answer; no other command waits for it."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
        from nvflare.fuel.f3.cellnet.utils import new_cell_message

        request = new_cell_message({}, message)
        reply = self._flare.api.cell.send_request(
            channel=channel, topic="call", target="server", request=request, timeout=limit, optional=True
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code not in (None, ReturnCode.OK) or not isinstance(reply.payload, dict):
            why = reply.get_header(MessageHeaderKey.ERROR) or ""
            if code in (ReturnCode.COMM_ERROR, ReturnCode.TARGET_UNREACHABLE):
                raise ServerOfflineError("the connection through the federation's server is broken")
            raise ServerOfflineError(f"the federation's server gave no answer: {code} {why}".strip())
        return dict(reply.payload)

    def close(self) -> None:
        """Log out, if the server still listens."""
        try:
            self._flare.set_timeout(2.0)
            within(_LOGOUT, self._flare.close)
        except Exception:  # a session that is left need not be logged out
            logging.getLogger(__name__).debug("the session could not be closed", exc_info=True)

    @staticmethod
    def _guard(function: Any, *arguments: Any) -> Any:
        """Call NVIDIA FLARE and sort what it raises."""
        from nvflare.apis.fl_exception import FLCommunicationError
        from nvflare.fuel.flare_api import api_spec

        offline = (api_spec.NoConnection, api_spec.SessionClosed, api_spec.SessionExpired, FLCommunicationError)
        denied = (api_spec.AuthenticationError, api_spec.AuthorizationError, api_spec.InvalidJobDefinition)
        try:
            return function(*arguments)
        except (*offline, OSError) as error:
            _, refused, why = str(error).partition(REFUSED)
            if refused:
                raise DeniedError(f"the federation's server refuses: {why}") from None
            raise ServerOfflineError(f"the federation's server does not answer: {error}") from None
        except denied as error:
            raise DeniedError(f"the federation's server refuses: {error}") from None


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call `function` in a thread that does not keep the process from ending."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(function(*arguments))
        except BaseException as error:  # of any kind: the caller gets it
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="fedspan-call").start()
    return done


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return or raise what `function` does within this time, or raise a `TimeoutError` and leave it behind.

    >>> within(1.0, int, "7")
    7
    """
    done = in_thread(function, *arguments)
    try:
        return done.result(timeout=seconds)
    except TimeoutError:
        if done.done():
            raise
        raise TimeoutError(f"no result within {seconds:g} seconds") from None


def _quiet() -> None:
    """Keep NVIDIA FLARE's log to itself, unless the user has set a level for it."""
    logger = logging.getLogger("nvflare")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
