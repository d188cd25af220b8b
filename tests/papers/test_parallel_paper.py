"""Jobs side by side: the same results as one after the other, in the order of asking, and errors are not lost."""

from __future__ import annotations

import math
import operator

import pytest

from fedspan.engines.local.blas_threads import blas_threads
from fedspan.papers.parallel_paper import jobs


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_asking(processes):
    with jobs("sums", processes) as todo:
        futures = todo.each(operator.add, [(i, i) for i in range(5)])
        assert [future.result() for future in futures] == [0, 2, 4, 6, 8]
        assert todo.submit(math.sqrt, 16.0).result() == 4.0


def test_a_process_has_one_thread():
    with jobs("threads", 2) as todo:
        assert todo.submit(blas_threads).result() == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_raised_where_the_result_is_wanted(processes):
    with pytest.raises(ZeroDivisionError), jobs("wrong", processes) as todo:
        todo.submit(operator.truediv, 1, 0).result()
