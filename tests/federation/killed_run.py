"""Run the ``wander`` protocol in processes for a test to kill, each a fork of this one, which has imported all.

A line of the input has the folder, wire (0 or 1), faults (0 or 1) and seconds per step. The output is the process id,
then, when the process has ended, its result, or an empty line where it was killed.
"""

from __future__ import annotations

import os
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


def federation(**options):
    X = np.random.default_rng(0).normal(size=(40, 3))
    return fs.federate(X, sites=np.arange(40) % 5, seed=9, policy=fs.Policy(quorum=1), **options)


def result(folder, wire, faults, pause):
    PAUSE[0] = float(pause)
    fed = federation(wire=wire == "1", run_dir=folder)
    if faults == "1":
        plan = fs.FaultPlan(seed=1, drop=0.05, delay=0.05, nonfinite=0.05, stale=0.05, duplicate=0.1, shape=0.05)
        fed = fed.with_faults(plan)
    return fed.run(slow_wander, rounds=12).tobytes().hex()


def main():
    federation().run(slow_wander, rounds=1)  # imports what is imported late
    for line in sys.stdin:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.write(writing, result(*line.rsplit(maxsplit=3)).encode())
            os._exit(0)
        os.close(writing)
        print(process, flush=True)
        with os.fdopen(reading) as answer:
            reported = answer.read()
        os.waitpid(process, 0)
        print(reported, flush=True)


if __name__ == "__main__":
    main()
