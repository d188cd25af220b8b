"""A user's session with the federation's server: the few commands that are needed, and what their failures mean."""

from __future__ import annotations

import json
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.setup.hardening import SERVER_CLASSES, SITE_CLASSES
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.errors import FedspanError

#: The app command that a relay listens to, and the channel of its calls. Calls travel as messages between processes, so
#: that bytes stay bytes and calls do not wait for each other. Of app commands (is the relay alive, which sites to give
#: up, when to end) the server passes on one at a time.
TOPIC = "fedspan"

#: Seconds in which a site reports which jobs it runs.
SITE_LIMIT = 2.0

#: Seconds that the server has for a login (it may just be starting, on a busy machine), and for one command.
LOGIN_LIMIT, COMMAND_LIMIT = 20.0, 10.0

#: Seconds in which all sites of a relay must have started their processes.
SYNC_LIMIT = 40

#: Seconds that NVIDIA FLARE's last attempt of a login takes, and seconds for the logout.
_LAST_ATTEMPT, _LOGOUT = 3.0, 3.0


class ServerOfflineError(FedspanError):
    """The federation's server does not answer."""


class DeniedError(FedspanError):
    """The federation's server refuses this user or this command."""


class JobEndedError(FedspanError):
    """The job does not run, or no longer."""


class UserSession:
    """One login. Every command raises `ServerOfflineError`, `DeniedError` or `JobEndedError`, or returns."""

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

    def registered(self) -> dict[str, float]:
        """Return when the server last heard of each registered site, by its clock."""
        info = self._guard(self._flare.get_system_info)
        return {site.name: float(site.last_connect_time) for site in info.client_info}

    def jobs_at(self, sites: Iterable[str]) -> dict[str, set[str]]:
        """Request from `sites` which jobs they run; one that does not answer is left out."""
        wanted = sorted(sites)
        self._flare.set_timeout(SITE_LIMIT)
        try:
            return self._jobs_at(wanted)
        except (ServerOfflineError, JobEndedError):
            if len(wanted) == 1:
                return {}
        finally:
            self._flare.set_timeout(self._limit)
        # One silent site keeps the server from answering for all: request them one by one.
        found: dict[str, set[str]] = {}
        for site in wanted:
            found |= self.jobs_at([site])
        return found

    def _jobs_at(self, sites: list[str]) -> dict[str, set[str]]:
        from nvflare.fuel.flare_api.api_spec import InvalidTarget, NoClientsAvailable

        try:
            entries = self._guard(self._flare.get_client_job_status, sites) or []
        except (InvalidTarget, NoClientsAvailable):
            raise JobEndedError("a site is no longer registered") from None
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
        """Send the relay `job` a command; return ``None`` if it runs but does not listen yet."""
        from nvflare.fuel.flare_api.api_spec import InternalError, NoReply

        try:
            answer = self._guard(self._flare.do_app_command, job, TOPIC, data)
        except (InternalError, NoReply):
            return None
        return answer if isinstance(answer, dict) else None

    def request(self, channel: str, message: Any, limit: float, job: str = "") -> dict[str, Any]:
        """Send the server, or the relay `job` on it, a message and return its answer; no other command waits for it."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
        from nvflare.fuel.f3.cellnet.utils import new_cell_message

        target, request = f"server.{job}" if job else "server", new_cell_message({}, message)
        reply = self._flare.api.cell.send_request(
            channel=channel, topic="call", target=target, request=request, timeout=limit, optional=True
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code not in (None, ReturnCode.OK) or not isinstance(reply.payload, dict):
            why = reply.get_header(MessageHeaderKey.ERROR) or ""
            if code in (ReturnCode.COMM_ERROR, ReturnCode.TARGET_UNREACHABLE):
                raise ServerOfflineError("the connection through the federation's server is broken")
            raise ServerOfflineError(f"the federation's server gave no answer: {code} {why}".strip())
        return dict(reply.payload)

    def status(self, job: str) -> tuple[str, str]:
        """Return NVIDIA FLARE's status of `job` in two words, such as ``("FINISHED", "COMPLETED")``."""
        state, _, how = str(self._guard(self._flare.get_job_meta, job).get("status", "")).partition(":")
        return state, how

    def abort(self, job: str) -> None:
        """End `job`, whatever it does."""
        self._guard(self._flare.abort_job, job)

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
            raise ServerOfflineError(f"the federation's server does not answer: {error}") from None
        except denied as error:
            raise DeniedError(f"the federation's server refuses: {error}") from None
        except (api_spec.JobNotRunning, api_spec.JobNotFound) as error:
            raise JobEndedError(str(error)) from None


def write_relay_job(folder: Path, sites: Iterable[str]) -> Path:
    """Write the job that runs the relay for `sites` into `folder`, and return its own folder.

    Three JSON files name classes that are installed everywhere: no code travels.
    """
    controller, relay = SERVER_CLASSES
    executor, app = SITE_CLASSES
    flow = {"server_obj_id": "relay", "sync_task_timeout": SYNC_LIMIT, "max_call_threads": 256}
    task = {"id": "executor", "path": executor, "args": {"client_obj_id": "site", "max_call_threads": 16}}
    files: dict[str, dict[str, Any]] = {
        "meta.json": {
            "name": "fedspan-relay",
            "resource_spec": {},
            "min_clients": 1,
            "deploy_map": {"app": ["server", *sorted(sites)]},
        },
        "app/config/config_fed_server.json": {
            "format_version": 2,
            "task_request_interval": 0.2,
            "workflows": [{"id": "controller", "path": controller, "args": flow}],
            "components": [{"id": "relay", "path": relay, "args": {}}],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2,
            "default_task_fetch_interval": 0.2,
            "executors": [{"tasks": ["*"], "executor": task}],
            "components": [{"id": "site", "path": app, "args": {}}],
        },
    }
    job = folder / "fedspan-relay"
    (job / "app" / "config").mkdir(parents=True)
    for name, content in files.items():
        (job / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return job


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
