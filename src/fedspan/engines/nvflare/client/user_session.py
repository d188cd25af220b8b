"""A user's session with the federation's server: messages to it, and what their failures mean."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from fedspan.engines.nvflare.setup.console_events import REFUSED
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.engines.nvflare.setup.reach import proxy_of, trouble
from fedspan.errors import FedspanError

if TYPE_CHECKING:
    from fedspan.engines.nvflare.flare import Answer, Head, Message

#: The channels of messages between users and the hub, and between the hub and sites.
CHANNEL, SITE_CHANNEL = "fedspan", "fedspan-site"

#: Seconds that the server has for a login (it may just be starting, on a busy machine).
LOGIN_LIMIT = 20.0

#: Seconds that NVIDIA FLARE's last attempt of a login takes, and seconds for the logout.
_LAST_ATTEMPT, _LOGOUT = 3.0, 3.0


class ServerOfflineError(FedspanError):
    """The federation's server does not answer."""


class DeniedError(FedspanError):
    """The federation's server refuses this user or this command."""


class UserSession:
    """One login. Every request raises `ServerOfflineError` or `DeniedError`, or returns."""

    def __init__(self, kit: Kit, login: float = LOGIN_LIMIT) -> None:
        from nvflare.fuel.flare_api.api_spec import InternalError
        from nvflare.fuel.flare_api.flare_api import Session

        from fedspan.engines.nvflare import flare

        _quiet()
        why = trouble(kit, login)
        if why is not None:
            raise ServerOfflineError(f"no connection with the federation's server: {why}")
        flare.use_proxy(proxy_of(kit))
        flare.settings_in(str(kit.path / "startup"))
        self._flare = self._guard(Session, kit.name, str(kit.path), True)
        self._cell: Any = None
        try:
            flare.user_cell(self._flare)
            self._guard(within, login, self._flare.try_connect, max(1.0, login - _LAST_ATTEMPT))
            self._cell = flare.user_cell(self._flare)
        except InternalError as error:
            self.close()
            raise ServerOfflineError(f"the federation's server accepts no logins now: {error}") from None
        except BaseException:
            self.close()
            raise

    def request(self, channel: str, topic: str, head: Head, body: bytes, limit: float, **way: bool) -> Message:
        """Send the server a message and return its answer; `way` is that of `carrier`."""
        from fedspan.engines.nvflare.flare import SERVER, RefusedError, carrier

        try:
            return carrier(self._cell, channel, **way)(SERVER, topic, head, body, limit)
        except RefusedError:
            raise
        except TimeoutError:
            raise ServerOfflineError(f"the federation's server gave no answer in {limit:g} seconds") from None
        except ConnectionError as error:
            raise ServerOfflineError(f"the connection with the federation's server is broken: {error}") from None

    def serve(self, channel: str, answer: Answer) -> None:
        """Answer the server's messages on a channel."""
        from fedspan.engines.nvflare.flare import serve

        serve(self._cell, channel, answer)

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
