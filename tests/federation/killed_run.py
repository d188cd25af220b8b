"""Run the ``wander`` protocol in a folder and print its result; a program for a test to kill.

Arguments: folder, wire (0 or 1), faults (0 or 1), seconds per step.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import fedspan as fs

PAUSE = [0.0]


@fs.step
def slow_walk(site, pull):
    time.sleep(PAUSE[0])
    site.state["steps"] = site.state.get("steps", 0) + 1
    site.state["position"] = site.state.get("position", np.zeros(3)) * 0.9 + site.rng.normal(size=3) * pull
    return {"position": site.state["position"], "steps": site.state["steps"]}


def slow_wander(fed, *, rounds):
    centre = np.zeros(3)
    for _ in fed.rounds(rounds):
        total = fed.sum(slow_walk, pull=1.0 + abs(centre[0]))
        replies = fed.sample(0.8).ask(slow_walk, pull=0.5)
        centre = total["position"] / total["steps"] + replies.stack("position").mean(axis=0) + fed.rng.normal(size=3)
        fed.log(norm=float(np.linalg.norm(centre)))
    return centre


if __name__ == "__main__":
    folder, wire, faults = sys.argv[1], sys.argv[2] == "1", sys.argv[3] == "1"
    PAUSE[0] = float(sys.argv[4])
    X = np.random.default_rng(0).normal(size=(40, 3))
    fed = fs.federate(X, sites=np.arange(40) % 5, seed=9, wire=wire, policy=fs.Policy(quorum=1), run_dir=folder)
    if faults:
        plan = fs.FaultPlan(seed=1, drop=0.05, delay=0.05, nonfinite=0.05, stale=0.05, duplicate=0.1, shape=0.05)
        fed = fed.with_faults(plan)
    print(fed.run(slow_wander, rounds=12).tobytes().hex())
