"""Jobs side by side: their results come in order, each on one thread, and errors are not lost."""

from __future__ import annotations

import operator

import pytest

from fedspan.engines.local.blas_threads import blas_threads
from fedspan.papers.parallel_paper import side_by_side


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_jobs(processes):
    assert side_by_side([(operator.add, i, i) for i in range(5)], "sums", processes) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_has_one_thread(processes):
    assert side_by_side([(blas_threads,)] * 2, "threads", processes) == [1, 1]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_of_a_job_is_raised(processes):
    with pytest.raises(ZeroDivisionError):
        side_by_side([(operator.truediv, 1, 0)], "wrong", processes)
