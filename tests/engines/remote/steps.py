"""Steps and a protocol that keep state, draw numbers and go wrong."""

from __future__ import annotations

import numpy as np

import fedspan as fs


@fs.step
def walk(site, pull):
    """Take one random step from where the site stands, towards its mean."""
    site.state["steps"] = site.state.get("steps", 0) + 1
    position = site.state.setdefault("position", np.zeros(site.X.shape[1]))
    position += 0.1 * site.rng.normal(size=position.shape) + pull * (site.X.mean(axis=0) - position)
    return {"position": position, "steps": site.state["steps"]}


@fs.step
def count(site):
    return {"n": len(site)}


@fs.step
def broken(site):
    raise RuntimeError(f"the first row is {site.X[0]}")


@fs.step
def leaving(site):
    raise SystemExit(3)


@fs.step
def objecting(site):
    raise fs.errors.InputError("this table has no column of numbers")


@fs.step
def odd(site, what, where):
    """Answer as the others do, but at one site."""
    value = np.ones(3)
    if site.name == where:
        value = {"nan": np.array([1.0, np.nan, 1.0]), "shape": np.ones(4), "size": np.ones(200_000)}[what]
    return {"value": value}


@fs.step
def heard(site, x):
    return {"n": len(x)}


def wander(fed, *, rounds=4):
    """A protocol with everything in it: state, both generators, samples, sums and single replies."""
    centre = 0.0
    for t in fed.rounds(rounds):
        replies = fed.sample(0.7).ask(walk, pull=0.5 / (t + 1))
        total = fed.sum(walk, pull=0.1)
        centre = replies.stack("position").mean(axis=0) + total["position"] + 0.01 * fed.rng.normal()
    return centre
