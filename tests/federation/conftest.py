"""A small federation, and steps that keep state and draw random numbers."""

from __future__ import annotations

import numpy as np
import pytest

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


def wander(fed, *, rounds=6):
    """A protocol with everything in it: state, both generators, samples, sums, single replies, an early stop."""
    centre = np.zeros(3)
    for t in fed.rounds(rounds):
        replies = fed.sample(0.7).ask(walk, pull=0.5 / (t + 1))
        total = fed.sum(walk, pull=0.1)
        centre = replies.stack("position").mean(axis=0) + total["position"] + 0.01 * fed.rng.normal(size=3)
        fed.log(norm=float(np.linalg.norm(centre)), steps=total["steps"])
        if t == 4:
            fed.stop("five rounds are enough")
    return centre


def make_sites(n_sites=7, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return [fs.Site(f"s{i}", rng.normal(loc=i, size=(rows + i, 3))) for i in range(n_sites)]


@pytest.fixture(params=[False, True], ids=["direct", "wire"])
def wire(request):
    return request.param


@pytest.fixture
def fed(wire):
    return fs.LocalFederation(make_sites(), wire=wire)
