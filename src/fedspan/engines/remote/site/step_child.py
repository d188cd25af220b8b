"""The step process of a site, and the template that forks it.

The worker forks the template when it starts. The template computes nothing and has no threads, so that it can be forked
safely at any time. Its one child is the step process, which runs one step after the other and keeps what they have
computed of the rows. When the worker ends, however it ended, the template kills its child and ends too.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
import warnings
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fedspan.engines.local.blas_threads import PinnedThreads, blas_threads
from fedspan.engines.remote.site.byte_link import ByteLink
from fedspan.errors import BudgetError, FedspanError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.federation.site.site import Site
from fedspan.federation.site.state import NO_CHANGES
from fedspan.federation.site.step_runner import StepRunner
from fedspan.federation.site.steps import Registry, find_step
from fedspan.federation.site.transforms import Transform
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_site_steps import part
from fedspan.wire import Message, as_array, canonical, encoded_size

#: Of the memory that a step may take, the share that its reply and what it puts into the state may have.
_REPLY_SHARE = 4
_FORK, _KILL, _READY, _STOPPED = b"f", b"k", b"r", b"s"
#: Seconds for the answer of the template.
_PATIENCE = 10.0


class StepTemplate:
    """The worker's handle of the template.

    Attributes
    ----------
    registered : int
        The number of registrations of steps and transforms when it was forked: its children know no later ones.
    """

    def __init__(self, site: Site, memory: int) -> None:
        blas_threads()  # finds the BLAS libraries once, for all children
        self.registered = Registry.additions
        self._control, its = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or the children would write it again
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the worker wait, or read messages
            self.pid = os.fork()
        if self.pid == 0:
            _serve_template(its, site, memory)
        its.close()
        self._control.recv(1)  # the template has given up the worker's files and locks
        self.close = weakref.finalize(self, _end, self._control, self.pid, os.getpid())

    def alive(self) -> bool:
        """Return whether the template still runs."""
        self._control.setblocking(False)
        try:
            return self._control.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._control.setblocking(True)

    def fork_child(self) -> ByteLink:
        """Kill the step process, if there is one, fork another, and return the connection to it."""
        mine, its = socket.socketpair()
        with its:
            socket.send_fds(self._control, [_FORK], [its.fileno()])
        return ByteLink(mine)

    def kill(self) -> bool:
        """Kill the step process; return whether another program had stopped it."""
        with suppress(OSError):
            self._control.settimeout(_PATIENCE)
            self._control.sendall(_KILL)
            return self._control.recv(1) == _STOPPED
        return False


def _end(control: socket.socket, pid: int, owner: int) -> None:
    control.close()
    if os.getpid() == owner:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _serve_template(control: socket.socket, site: Site, memory: int) -> NoReturn:
    """Fork and kill step processes as the worker requests."""
    child = 0
    try:
        gc.freeze()  # what the worker has open is not closed here, and its memory stays shared
        _leave_worker(control.fileno())
        control.send(_READY)
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if message == _KILL:
                control.send(_STOPPED if _is_stopped(child) else _READY)
            if child:
                with suppress(OSError):
                    os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = 0
            if not message:
                break
            if descriptors:
                child = os.fork()
                if child == 0:
                    control.close()
                    _serve_steps(ByteLink(socket.socket(fileno=descriptors[0])), site, memory)
                with suppress(OSError):
                    os.setpgid(child, child)  # here as well: a kill may come before the child has done it
                os.close(descriptors[0])
    finally:
        os._exit(0)


def _is_stopped(process: int) -> bool:
    """Return whether a process waits for a signal to go on, where the system shows it."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _leave_worker(keep: int) -> None:
    """Give up the worker's signals, files, locks and connections."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in (keep, null):
            with suppress(OSError):  # the listing's own descriptor
                os.fstat(int(name))
                os.dup2(null, int(name), inheritable=False)  # the number stays taken


def _serve_steps(link: ByteLink, site: Site, memory: int) -> NoReturn:
    """Run steps until the worker closes the connection."""
    try:
        os.setpgid(0, 0)
        _limit(memory)
        steps = _Steps(link, site, memory)
        while True:
            steps.serve_one()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _limit(memory: int) -> None:
    """Limit this process to `memory` bytes more than it has; let the system end it first where memory runs out."""
    with suppress(OSError, ValueError):  # of Linux alone
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


@dataclass(frozen=True)
class _SumRules:
    """What a step may know of the vault, which stays with the worker."""

    known: int
    numbers: FixedPoint

    def knows(self, me: str) -> int:
        return self.known

    @property
    def resolution(self) -> float:
        return self.numbers.resolution


class _Charges(list[tuple[NoiseQuery, float, float]]):
    """The charges of a call; the worker learns of each at once."""

    def __init__(self, link: ByteLink) -> None:
        super().__init__()
        self._link = link

    def append(self, charge: tuple[NoiseQuery, float, float]) -> None:
        query, mu2, rho = charge
        message = {"charge": query.step, "run": query.run, "digest": as_array(query.digest), "mu2": mu2, "rho": rho}
        self._link.send_messages(message)
        super().append(charge)


class _Steps:
    """Runs the steps that a worker sends."""

    def __init__(self, link: ByteLink, site: Site, memory: int) -> None:
        self._link = link
        self._runner = StepRunner(site)
        self._memory = memory
        self._base: Message = {}
        self._number_of_threads = blas_threads()
        self._threads = PinnedThreads(self._number_of_threads)

    def serve_one(self) -> None:
        """Run one step, and send its result."""
        head, payload, changed = self._link.message(), self._link.message(), self._link.message()
        for key in json.loads(head["dropped"]):
            del self._base[key]
        self._base |= changed
        transforms = tuple(
            Transform(id, self._link.message(), None if columns is None else tuple(columns))
            for id, columns in json.loads(head["transforms"])
        )
        call = Call(head["run"], head["number"], int(head["seed"]), find_step(head["step"]), payload, (), transforms)
        context = CallContext(
            dict(self._base),
            call.run,
            call.number,
            call.seed,
            call.step.id,
            payload,
            call.transform_digests,
            ledger=self._runner.site.ledger,
            largest=head["largest"],
        )
        context.hidden, context.charged = head["hidden"], _Charges(self._link)
        try:
            answer = self._answer(head, call, payload, context)
        except MemoryError:
            answer = [self._head(context, exhausted=True) | {"error": ""}]
        except BaseException as error:
            answer = [self._head(context) | _description(error)]
        self._link.send_messages(*answer)

    def _answer(self, head: Message, call: Call, payload: Message, context: CallContext) -> list[Message]:
        """Do the work; return the head of the answer, the reply, and what the step put into the site's state."""
        self._set_threads(head["threads"])
        about: Message = {}
        if head["work"] == "fewest":
            assert call.step.fewest is not None
            seen = self._runner.shown(call, context) if call.transforms else self._runner.site
            reply: Message | None = {"rows": call.step.fewest(seen, **payload)}
            changes = NO_CHANGES
        else:
            if head["work"] == "part":
                numbers = FixedPoint(head["largest_number"], head["fraction_bits"])
                context.vault = _SumRules(head["knows"], numbers)
                reply, layout = part(self._runner.shown(call, context), call.step.id, payload, numbers)
                about = {"spoilt": reply is None, "layout": layouts.as_text(layout)}
            else:
                reply = self._runner.run(call, payload, context)
            changes = self._runner.site.in_call(context).changes()
        about |= self._head(context) | {"deleted": json.dumps(changes.deleted)}
        answer = [canonical(one, copy=False) for one in (about, reply or {}, changes.put)]
        if sum(map(encoded_size, answer)) > self._memory // _REPLY_SHARE:
            raise MemoryError
        return answer

    def _head(self, context: CallContext, *, exhausted: bool = False) -> Message:
        return {"exhausted": exhausted, "charges": len(context.charged), "least": context.least}

    def _set_threads(self, number: int) -> None:
        """Fix the number of BLAS threads to the run's: it decides the last bits of a result."""
        if number != self._number_of_threads:
            self._threads.release()
            self._threads, self._number_of_threads = PinnedThreads(number), number


def _description(error: BaseException) -> Message:
    """Return the names of an error's classes, and its text where that holds no rows."""
    own = isinstance(error, FedspanError)
    return {
        "error": json.dumps([kind.__name__ for kind in type(error).__mro__]),
        "text": str(error).encode(errors="replace").decode() if own else "",
        "facts": json.dumps(error.facts if isinstance(error, BudgetError) else {}),
    }
