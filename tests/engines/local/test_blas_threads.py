"""The number of BLAS threads belongs to the run."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.blas_threads import PinnedThreads, blas_threads


@fs.step
def threads_here(site):
    return {"threads": blas_threads()}


def test_a_resumed_run_goes_on_with_the_threads_it_began_with(tmp_path):
    ambient = blas_threads()
    other = PinnedThreads(2 if ambient == 1 else 1)
    began_with = blas_threads()
    assert began_with != ambient

    def protocol(fed):
        return fed.ask(threads_here)["a"]["threads"], fed.ask(threads_here)["a"]["threads"], blas_threads()

    sites = [fs.Site("a", np.eye(2))]
    assert fs.LocalFederation(sites, run_dir=tmp_path).run(protocol) == (began_with,) * 3
    other.release()
    assert blas_threads() == ambient
    journal = tmp_path / "run-000" / "journal"
    journal.write_bytes(journal.read_bytes()[:-100])
    assert fs.LocalFederation(sites, run_dir=tmp_path).run(protocol) == (began_with,) * 3
    assert blas_threads() == ambient


def test_threads_are_put_back_after_a_failed_run(tmp_path):
    before = blas_threads()
    with pytest.raises(RuntimeError), fs.LocalFederation([fs.Site("a", np.eye(2))]).begin("x"):
        raise RuntimeError
    assert blas_threads() == before
