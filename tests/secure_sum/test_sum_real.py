"""Raw traffic, whose columns are up to nine orders of magnitude apart, under a secure sum without any setting."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from tests import real_data

pytestmark = pytest.mark.slow


def test_unsw_as_it_comes():
    X = real_data.unsw().data[:20_000]
    assert np.abs(X).max() > 1e9
    for make in (fs.FedStandardScaler, lambda: fs.FedPCA(5, scale=True), lambda: fs.FedTabularEncoder(categorical=[])):
        plain, secure = (
            make().fit(fs.federate(X, sites=np.arange(len(X)) % 4, policy=fs.Policy(secure_sum=secure)))
            for secure in (False, True)
        )
        for name in ("mean_", "scale_"):
            np.testing.assert_allclose(getattr(secure, name), getattr(plain, name), rtol=1e-12)
        if hasattr(plain, "components_"):
            np.testing.assert_allclose(secure.components_, plain.components_, atol=1e-11)
        if hasattr(plain, "log_"):
            np.testing.assert_array_equal(secure.log_, plain.log_)
