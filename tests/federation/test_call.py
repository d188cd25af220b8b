"""Calls: payloads, digests and sizes."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.federation.calls.call import Call
from fedspan.federation.site.steps import find_step
from fedspan.federation.site.transforms import Transform

from .conftest import count


@fs.step
def echo(site, **payload):
    return {key: value for key, value in payload.items() if value is not None}


def test_a_payload_for_one_site_alone_belongs_to_its_query():
    payload, more = {"x": np.zeros(3)}, {"y": np.zeros(5)}
    call = Call("run", 0, 0, find_step(count), payload, ("a", "b"), apart={"b": more})
    assert call.payload_of("a") == payload
    assert call.payload_of("b").keys() == {"x", "y"}
    transform = Transform.of(echo, {"by": 1.0})
    seen = Call("run", 0, 0, find_step(count), payload, ("a", "b"), transforms=(transform, transform))
    assert call.part == 0
    assert call.query("a") != call.query("b")
    alone = Call("other", 7, 1, find_step(count), payload, ("a",))
    assert call.query("a") == alone.query("a")  # whichever other sites receive it
    assert len({call.digest, seen.digest, alone.digest}) == 3
