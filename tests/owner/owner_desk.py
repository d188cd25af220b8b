"""A site with an owner's file, and a user that sends signed requests to it."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pandas as pd

import fedspan as fs
from fedspan.engines.remote.messages.envelope import Sealed, open_sealed
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.request_head import call_head
from fedspan.errors import UnknownStepError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.steps import find_step
from fedspan.owner import read_owned_site
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.wire import decode
from tests.engines.remote.people import authority, identity, user
from tests.engines.remote.steps_here import worker_here

SUMS = "sums.sums"
OFFER = "secure_sum.offer"
NUMBERS = {
    "largest": FixedPoint.of(fs.SecureSum()).largest,
    "fraction_bits": FixedPoint.of(fs.SecureSum()).fraction_bits,
}


def numbers(rows=40, columns=("a", "b"), seed=0):
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, len(columns))), columns=list(columns))


class Desk:
    def __init__(self, folder, rules="", frame=None, data="", name="a", **sections):
        self.folder, self.name = folder, name
        folder.mkdir(exist_ok=True)
        (numbers() if frame is None else frame).to_csv(folder / "rows.csv", index=False)
        if "level" not in rules:  # most tests are about steps that the default level does not admit
            rules = 'level = "trusted"\n' + ("" if "steps" in rules else 'steps = ["summaries"]\n') + rules
        text = f'[site]\nname = "{name}"\n[data]\nfile = "rows.csv"\n{data}\n[rules]\n{rules}\n'
        text += "".join(f"[{section}]\n{body}\n" for section, body in sections.items())
        (folder / "site.toml").write_text(text)
        self.worker = None
        self.open()

    def open(self):
        if self.worker is not None:
            self.worker.close()
        self.owned = read_owned_site(self.folder / "site.toml")
        own, known = identity(self.name), authority(["a", "b", "c"])
        owned = self.owned
        self.worker = worker_here(owned.site, self.folder / "store", own, known, owned.admission, owned.describe)

    def request(self, step, number, run, kind, who, payload, apart, transforms, after, head):
        try:
            found = find_step(step)
        except UnknownStepError:
            found = replace(find_step(SUMS), id=step)
        call = Call(run, number, 5, found, payload, (self.name,), transforms=transforms, apart={self.name: apart or {}})
        fields, parts = call_head(call, [self.name], {self.name: after}, fs.Policy(deadline=60.0), 1)
        if apart is None:
            del parts[f"apart {self.name}"]
        about = {"kind": kind, "federation": "clinics", "version": fedspan_version(), "run": run}
        return Sealed(who, "request", about | {"serial": time.time_ns()} | fields | head, parts).to(self.name)

    def ask(
        self,
        step=SUMS,
        number=0,
        *,
        run="r",
        kind="call",
        who=None,
        payload=None,
        apart=None,
        transforms=(),
        after=-1,
        over=None,
        **head,
    ):
        """Return the reply, or the reason why there is none; `found` is all of the answer."""
        who = who or user()
        request = self.request(
            step, number, run, kind, who, payload or {}, apart, transforms, after, head | (over or {})
        )
        self.found = open_sealed(self.worker.answer(request), authority(), "response", "", 2**28)
        answer = self.found.head
        return decode(self.found.parts["reply"]) if answer["kind"] == "reply" else answer.get("why", answer["kind"])

    def lines(self):
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]


class Wires:
    """A transport between desks."""

    def __init__(self, *desks):
        self.desks = {desk.name: desk for desk in desks}
        self.sites = tuple(self.desks)

    def send(self, requests, deadline):
        return ((name, self.desks[name].worker.answer(request)) for name, request in requests.items())

    def online(self):
        return frozenset(self.sites)

    def close(self):
        pass
