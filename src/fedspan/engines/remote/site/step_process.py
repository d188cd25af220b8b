"""The worker's side of the step process, which runs all steps of a site, with limits on time and memory.

Whatever a request makes a step do, the worker survives it. A step that exceeds a limit ends with its process, and the
next one gets a new process. What a step returns comes through a pipe, in the wire format. The disk, the keys of secure
sums and the ledger's charges stay with the worker. A charge reaches the worker before the step gets the key of its
noise, so that a step that is killed afterwards stays charged.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedspan import errors
from fedspan.engines.remote.messages.refusals import StepError, StepLimitError
from fedspan.engines.remote.site.byte_link import ByteLink
from fedspan.engines.remote.site.step_child import StepTemplate
from fedspan.errors import BudgetError, FedspanError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext, OversizeError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.federation.site.site import Site
from fedspan.federation.site.state import Changes
from fedspan.federation.site.step_runner import reply_of
from fedspan.federation.site.steps import Registry
from fedspan.federation.site.transforms import Transform
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_site_steps import STAGES
from fedspan.wire import Message

_STAGES = frozenset(stage.id for stage in STAGES)
#: The errors whose sentences hold no rows, by name. Of any other error only its name leaves the step process.
_KINDS = (*(found for found in vars(errors).values() if isinstance(found, type)), OversizeError)
_ERRORS: dict[str, Callable[..., FedspanError]] = {kind.__name__: kind for kind in _KINDS}
#: Seconds to wait for the last messages of a process that was killed.
_LAST_MESSAGES = 10.0
#: Seconds between two ticks of a clock, and the longest time between two that counts.
_TICK, _LONGEST = 0.25, 1.0


def default_memory() -> int:
    """Return half of the machine's memory, or of what its container may use, in bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError):  # "max": no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found) // 2


class StepProcess:
    """Runs the steps of one site in a process that can be killed (see `Runner`).

    Parameters
    ----------
    site : Site
    memory : int
        Bytes that steps may take, besides those of the site's worker.
    """

    def __init__(self, site: Site, memory: int) -> None:
        self._site = site
        self._memory = memory
        self._until, self._seconds, self._threads = 0.0, 0.0, 1
        self._known: Message = {}  # the state that the process has
        self._link: ByteLink | None = None
        self._template: StepTemplate | None = None
        self._connected()  # now, before the worker has threads
        self._clock = _AwakeClock()

    def begin(self, left: float, seconds: float, threads: int) -> None:
        """Begin a request's work: it may take what is `left` of its `seconds`, in which this process can run."""
        self._until, self._seconds, self._threads = self._clock.now() + left, seconds, threads

    def close(self) -> None:
        """End the processes."""
        self._clock.close()
        self._end()

    def _end(self) -> None:
        self._drop()
        if self._template is not None:
            self._template.close()
            self._template = None

    def run(self, call: Call, payload: Message, context: CallContext) -> Message:
        """Run the call's step. The rounds of a secure sum run here; the step whose replies are added runs there."""
        if call.step.id in _STAGES:
            context.run_part = partial(self._run_part, call)
            return reply_of(call, payload, self._site.in_call(context))
        return self._work("step", call.step.id, payload, context, call.transforms)[1]

    def fewest(self, step: str, payload: Mapping[str, Any], transforms: tuple[Transform, ...] = ()) -> int:
        """Return the smallest number of rows, as `transforms` show them, that one number of a reply would summarise."""
        return int(self._work("fewest", step, dict(payload), CallContext({}, step=step), transforms)[1]["rows"])

    def _run_part(
        self, call: Call, site: Site, what: str, payload: Message, numbers: FixedPoint
    ) -> tuple[Message | None, layouts.Layout]:
        context = site.context
        rules: Message = {"knows": context.vault.knows(site.name)}
        rules |= {"largest_number": numbers.largest, "fraction_bits": numbers.fraction_bits}
        head, reply = self._work("part", what, payload, context, call.transforms, rules)
        return (None if head["spoilt"] else reply), layouts.from_text(head["layout"])

    def _work(
        self,
        what: str,
        step: str,
        payload: Message,
        context: CallContext,
        transforms: tuple[Transform, ...] = (),
        more: Mapping[str, Any] | None = None,
    ) -> tuple[Message, Message]:
        """Let the process do some work. Return its answer's head and reply; `context` gets charges and changes."""
        head: Message = {
            "work": what,
            "run": context.run,
            "number": context.number,
            "seed": str(context.seed),
            "step": step,
            "hidden": context.hidden,
            "largest": context.largest,
            "threads": self._threads,
            "transforms": json.dumps([[one.id, one.columns] for one in transforms]),
            **(more or {}),
        }
        for again in (False, True):
            try:
                answer, reply, put = self._exchange(head, payload, context, transforms)
                break
            except (EOFError, OSError) as error:  # killed or stopped from outside: once, it gets another chance
                stopped = isinstance(error, TimeoutError)
                if again:
                    why = "was stopped" if stopped else "died, as happens where memory runs out"
                    raise StepLimitError(step, f"its process {why}") from None
                self._until = self._clock.now() + self._seconds if stopped else self._until
        context.least = answer["least"]
        if not answer["charges"]:
            context.charged.clear()
        if "error" in answer:
            raise self._error(step, answer)
        context.changes = Changes(put, tuple(json.loads(answer["deleted"])))
        return answer, reply

    def _exchange(
        self, head: Message, payload: Message, context: CallContext, transforms: tuple[Transform, ...]
    ) -> tuple[Message, Message, Message]:
        """Send work to the process; return its answer's head, its reply, and what it put into the state."""
        link, base = self._connected(), context.base
        dropped = {"dropped": json.dumps([key for key in self._known if key not in base])}
        changed = {key: value for key, value in base.items() if self._known.get(key, head) is not value}
        answer: Message = {"exhausted": True}
        try:
            link.send_messages(head | dropped, payload, changed, *(one.parameters for one in transforms))
            found = self._answer(link, head["step"], context)
            reply, put = ({}, {}) if "error" in found else (link.message(), link.message())
            self._known, answer = dict(base), found
            return answer, reply, put
        finally:
            if answer["exhausted"]:
                self._drop()

    def _answer(self, link: ByteLink, step: str, context: CallContext) -> Message:
        """Return the head of the process's answer; note charges, and kill the process when its time is over.

        `TimeoutError` where another program had stopped it.
        """
        killed = stopped = False
        while True:
            left = _LAST_MESSAGES if killed else self._until - self._clock.now()
            try:
                message = link.message() if link.wait(left) else None
            except (EOFError, OSError):
                if not killed:
                    raise
                message = None
            if message is not None and "charge" in message:
                query = NoiseQuery(message["run"], message["charge"], message["digest"].tobytes())
                context.charged.append((query, message["mu2"], message["rho"]))
            elif stopped:
                raise TimeoutError
            elif killed:
                raise StepLimitError(step, f"it took longer than {self._seconds:.3g} s")
            elif message is not None:
                return message
            elif self._clock.now() >= self._until:
                assert self._template is not None
                killed, stopped = True, self._template.kill()

    def _error(self, step: str, answer: Message) -> FedspanError:
        if answer["exhausted"]:
            return StepLimitError(step, f"it needed more memory than the {self._memory:,} bytes allowed")
        names = json.loads(answer["error"])
        known = next((name for name in names if name in _ERRORS), None)
        if known is None:
            return StepError(step, names[0])
        facts = json.loads(answer["facts"]) if issubclass(_ERRORS[known], BudgetError) else {}  # type: ignore[arg-type]
        return _ERRORS[known](answer["text"], **facts)

    def _connected(self) -> ByteLink:
        """Return the connection to the step process, forked if none is open, or if steps were installed since."""
        if self._template is None or self._template.registered != Registry.additions or not self._template.alive():
            self._end()
            self._template = StepTemplate(self._site, self._memory)
        if self._link is None:
            self._link = self._template.fork_child()
        return self._link

    def _drop(self) -> None:
        """Give the process up; the next step gets another one."""
        self._known = {}
        if self._link is not None:
            self._link.close()
            self._link = None


class _AwakeClock:
    """The monotonic clock without the time in which this process was stopped: a paused container makes no step slow."""

    def __init__(self) -> None:
        self._ticked = (0.0, time.monotonic())  # both clocks, at the last tick
        self._stop = threading.Event()
        threading.Thread(target=self._tick, daemon=True, name="fedspan-awake-clock").start()

    def now(self) -> float:
        """Return the seconds in which this process could run since the clock was made."""
        awake, when = self._ticked
        return awake + min(time.monotonic() - when, _LONGEST)

    def close(self) -> None:
        """End the clock's thread."""
        self._stop.set()

    def _tick(self) -> None:
        while not self._stop.wait(_TICK):
            self._ticked = self.now(), time.monotonic()
