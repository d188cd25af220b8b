"""Steps that the sites of these tests have installed besides fedspan's, as an owner may (``[site] modules``)."""

from __future__ import annotations

import time

import numpy as np

import fedspan as fs


@fs.step
def drift(site, shift, seconds):
    """Leaves the site: a running mean that depends on all calls before it, and on numbers drawn at the site."""
    time.sleep(seconds)
    past = site.state.get("past", np.zeros(site.X.shape[1]))
    site.state["past"] = 0.5 * past + site.X.mean(axis=0) + shift + site.rng.normal(size=site.X.shape[1])
    return {"past": site.state["past"]}


@fs.step
def many_bytes(site, size):
    """Leaves the site: `size` bytes."""
    return {"bytes": np.arange(size, dtype=np.uint8), "echo": size}


@fs.step
def listen(site, bulk):
    """Leaves the site: the sum of what was sent to it."""
    return {"total": int(bulk.sum())}


@fs.step
def forbidden(site):
    """Leaves the site: nothing, as no owner allows it."""
    return {"n": len(site)}


def drifted(fed, rounds, seconds, between=lambda number: None):
    """Drift for some rounds; `between` is called before each."""
    shift = np.zeros(1)
    for number in range(rounds):
        between(number)
        replies = fed.ask(drift, shift=shift, seconds=seconds)
        shift = np.mean([reply["past"] for _, reply in sorted(replies.ok.items())], axis=0)
    return shift
