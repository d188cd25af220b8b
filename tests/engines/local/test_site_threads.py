"""The threads behind the embedded engine."""

from __future__ import annotations

import threading
import time

import numpy as np

import fedspan as fs
from fedspan.engines.local.site_threads import Batch


def test_every_name_is_done_once_on_any_number_of_threads():
    for threads in (1, 2, 7, 50):
        done = []
        batch = Batch([str(i) for i in range(30)], lambda name, done=done: done.append(name) or int(name), deadline=30)
        batch.run(threads)
        assert batch.results == {str(i): i for i in range(30)}
        assert sorted(done, key=int) == [str(i) for i in range(30)]


def test_nothing_to_do_is_done_at_once():
    batch: Batch[int] = Batch([], lambda name: 1, deadline=30)
    batch.run(3)
    assert batch.results == {}


def test_many_hung_jobs_do_not_keep_the_others_waiting_for_ever():
    release = threading.Event()

    def job(name):
        if name.startswith("hung"):
            release.wait(300)
        return name

    names = [f"hung{i}" for i in range(4)] + [f"fine{i}" for i in range(10)]
    batch = Batch(names, job, deadline=2.0)
    batch.run(2)
    assert sorted(batch.results) == sorted(names[4:])
    assert batch.overdue == set(names[:4])
    release.set()
    for _ in range(24_000):
        if not batch.overdue:
            break
        time.sleep(0.005)
    assert not batch.overdue
    assert sorted(batch.results) == sorted(names[4:])  # what came late does not count


def test_threads_are_used_again():
    fed = fs.LocalFederation([fs.Site(str(i), np.eye(2)) for i in range(4)], n_jobs=2)

    @fs.step
    def nothing(site):
        return {}

    fed.ask(nothing)
    before = threading.active_count()
    for _ in range(50):
        fed.ask(nothing)
    assert threading.active_count() <= before + 2
