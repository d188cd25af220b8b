from __future__ import annotations

import numpy as np
import pytest
from lifelines.statistics import multivariate_logrank_test

import fedspan as fs
from fedspan.errors import InputError

from .lung_patients import institutions, lung, target

FRAME = lung()
Y, SITES = target(FRAME), institutions(FRAME)


@pytest.mark.parametrize("by", ["sex", "ph.ecog"])
@pytest.mark.parametrize("times", [None, range(1, 1100)], ids=["all", "days"])
def test_it_is_that_of_the_pooled_rows(by, times):
    fed = fs.federate(FRAME[["age", "sex", "ph.ecog"]], Y, sites=SITES)
    found = fs.statistics.log_rank(fed, by=by, times=times)
    theirs = multivariate_logrank_test(Y[:, 0], FRAME[by], Y[:, 1])
    np.testing.assert_allclose([found.statistic, found.p_value], [theirs.test_statistic, theirs.p_value], rtol=1e-8)
    assert found.df == FRAME[by].nunique() - 1
    assert found.observed.sum() == Y[:, 1].sum()
    np.testing.assert_allclose(found.expected.sum(), Y[:, 1].sum())


def test_groups_without_rows_take_no_part():
    fed = fs.federate(FRAME[["sex"]], Y, sites=SITES)
    found = fs.statistics.log_rank(fed, groups=["1", "2", "9"], times=range(1, 1100))
    assert found.groups == ("1", "2")
    with pytest.raises(InputError, match="1 has rows: name another column"):
        fs.statistics.log_rank(fed, groups=["1"], times=range(1, 1100))
