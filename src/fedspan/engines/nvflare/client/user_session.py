"""A user's session with the federation's server: the few commands that are needed, and what their failures mean."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.client.relay_job import write_relay_job
from fedspan.engines.nvflare.client.timeouts import within
from fedspan.engines.nvflare.server.relay_topic import TOPIC
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.errors import FedspanError

#: Seconds in which a site says which jobs it runs.
SITE_LIMIT = 2.0

#: Seconds that the server has for letting a user in (it may be just starting, on a busy machine), and for one command.
LOGIN_LIMIT, COMMAND_LIMIT = 20.0, 10.0

#: Seconds of those for letting in that NVIDIA FLARE's last try takes, and seconds for logging out.
_LAST_TRY, _GOODBYE = 3.0, 3.0


class AwayError(FedspanError):
    """The federation's server does not answer."""


class DeniedError(FedspanError):
    """The federation's server refuses this user or this command."""


class GoneError(FedspanError):
    """The job does not run, or not any more."""


class Session:
    """One login. Every command raises `AwayError`, `DeniedError` or `GoneError`, or returns."""

    def __init__(self, kit: Kit, limit: float = COMMAND_LIMIT, login: float = LOGIN_LIMIT) -> None:
        from nvflare.fuel.flare_api.api_spec import InternalError
        from nvflare.fuel.flare_api.flare_api import Session as Flare

        from fedspan.engines.nvflare.setup import handshake

        _quiet()
        handshake.install()
        self._flare = self._guard(Flare, kit.name, str(kit.path), True)
        self._flare.api._print_hci = lambda message: None  # a notebook's user did not ask
        self._limit = limit
        self._flare.set_timeout(limit)
        try:
            self._guard(within, login, self._flare.try_connect, max(1.0, login - _LAST_TRY))
        except InternalError as error:
            self.close()
            raise AwayError(f"the federation's server does not let anybody in now: {error}") from None
        except BaseException:
            self.close()
            raise

    def set_limit(self, seconds: float) -> None:
        """Give each command so many seconds, here and at the server."""
        self._limit = seconds
        self._flare.set_timeout(seconds)

    def registered(self) -> dict[str, float]:
        """Return when each registered site was last heard of, by the server's clock."""
        info = self._guard(self._flare.get_system_info)
        return {site.name: float(site.last_connect_time) for site in info.client_info}

    def jobs_at(self, sites: Iterable[str]) -> dict[str, set[str]]:
        """Ask `sites` themselves which jobs they run; one that does not answer is left out."""
        asked = sorted(sites)
        self._flare.set_timeout(SITE_LIMIT)
        try:
            return self._jobs_at(asked)
        except (AwayError, GoneError):
            if len(asked) == 1:
                return {}
        finally:
            self._flare.set_timeout(self._limit)
        # One silent site keeps the server from answering for all: ask them one by one.
        found: dict[str, set[str]] = {}
        for site in asked:
            found |= self.jobs_at([site])
        return found

    def _jobs_at(self, sites: list[str]) -> dict[str, set[str]]:
        from nvflare.fuel.flare_api.api_spec import InvalidTarget, NoClientsAvailable

        try:
            entries = self._guard(self._flare.get_client_job_status, sites) or []
        except (InvalidTarget, NoClientsAvailable):
            raise GoneError("a site was struck off") from None
        found: dict[str, set[str]] = {}
        for entry in entries:
            if entry.get("status") != "no_reply":
                jobs = found.setdefault(entry["client_name"], set())
                if entry.get("status") in ("starting", "started"):
                    jobs.add(entry["job_id"])
        return found

    def submit_relay(self, sites: Iterable[str]) -> str:
        """Start a relay for `sites` and return its job."""
        with tempfile.TemporaryDirectory(prefix="fedspan-") as folder:
            return str(self._guard(self._flare.submit_job, str(write_relay_job(Path(folder), sites))))

    def command(self, job: str, **data: Any) -> dict[str, Any] | None:
        """Ask the relay `job`; None if it runs but does not listen yet."""
        from nvflare.fuel.flare_api.api_spec import InternalError, NoReply

        try:
            answer = self._guard(self._flare.do_app_command, job, TOPIC, data)
        except (InternalError, NoReply):
            return None
        return answer if isinstance(answer, dict) else None

    def call(self, job: str, message: dict[str, Any], limit: float) -> dict[str, Any]:
        """Send the relay `job` a call and return its answer: bytes stay bytes, and no other command waits for it."""
        return self._ask_cell(TOPIC, f"server.{job}", message, limit)

    def _ask_cell(self, channel: str, target: str, message: Any, limit: float) -> dict[str, Any]:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
        from nvflare.fuel.f3.cellnet.utils import new_cell_message

        request = new_cell_message({}, message)
        reply = self._flare.api.cell.send_request(
            channel=channel, topic="call", target=target, request=request, timeout=limit, optional=True
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code not in (None, ReturnCode.OK) or not isinstance(reply.payload, dict):
            why = reply.get_header(MessageHeaderKey.ERROR) or ""
            if code in (ReturnCode.COMM_ERROR, ReturnCode.TARGET_UNREACHABLE):
                raise AwayError("the way to it through the federation's server is broken")
            raise AwayError(f"the federation's server gave no answer: {code} {why}".strip())
        return dict(reply.payload)

    def ask_server(self, channel: str, message: bytes, limit: float) -> dict[str, Any]:
        """Send the server itself a message and return its answer."""
        return self._ask_cell(channel, "server", message, limit)

    def status(self, job: str) -> str:
        """Return what the server's list says of `job`, such as ``FINISHED:COMPLETED``."""
        return str(self._guard(self._flare.get_job_meta, job).get("status", ""))

    def abort(self, job: str) -> None:
        """End `job`, whatever it does."""
        self._guard(self._flare.abort_job, job)

    def close(self) -> None:
        """Log out, if the server still listens."""
        try:
            self._flare.set_timeout(2.0)
            within(_GOODBYE, self._flare.close)
        except Exception:  # what is being left need not say goodbye
            logging.getLogger(__name__).debug("the session could not be closed", exc_info=True)

    @staticmethod
    def _guard(function: Any, *arguments: Any) -> Any:
        """Call NVIDIA FLARE and sort what it raises."""
        from nvflare.apis.fl_exception import FLCommunicationError
        from nvflare.fuel.flare_api import api_spec

        away = (api_spec.NoConnection, api_spec.SessionClosed, api_spec.SessionExpired, FLCommunicationError, OSError)
        denied = (api_spec.AuthenticationError, api_spec.AuthorizationError, api_spec.InvalidJobDefinition)
        gone = (api_spec.JobNotRunning, api_spec.JobNotFound)
        try:
            return function(*arguments)
        except away as error:
            raise AwayError(f"the federation's server does not answer: {error}") from None
        except denied as error:
            raise DeniedError(f"the federation's server refuses: {error}") from None
        except gone as error:
            raise GoneError(str(error)) from None


def _quiet() -> None:
    """Keep NVIDIA FLARE's log to itself, unless the user has set a level for it."""
    logger = logging.getLogger("nvflare")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
