"""Agreement on columns: other numbers and names of columns, and strange replies."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs

ROWS, SITES = np.random.default_rng(0).normal(size=(200, 4)) * [5.0, 3.0, 1.0, 0.5], np.arange(200) % 10


@pytest.mark.parametrize("names", [np.array(5.0), np.zeros((2, 2)), "x", 3, np.array(["a"])], ids=repr)
@pytest.mark.parametrize("wire", [False, True])
def test_strange_names_of_columns_cost_their_site_and_never_the_run(wire, names):
    def attack(replies, bad, rng, call):
        first = call.step in ("sums.columns", "sums.moments")
        return {site: {**replies[site], "names": names} for site in bad} if first else {}

    fed = fs.federate(ROWS, sites=SITES, wire=wire).corrupt(attack, sites=["2"])
    for model in (fs.FedPCA(2, solver="subspace_median"), fs.FedPCA(2), fs.FedStandardScaler()):
        assert len(model.fit(fed).sites_) >= 9


@pytest.mark.parametrize("count", [np.array(4), np.array(4.0), 4.0, True, 2**63], ids=repr)
@pytest.mark.parametrize("wire", [False, True])
def test_a_strange_number_of_columns_costs_its_site_and_never_the_run(wire, count):
    def attack(replies, bad, rng, call):
        first = call.step in ("sums.columns", "sums.moments")
        return {site: {**replies[site], "columns": count} for site in bad} if first else {}

    fed = fs.federate(ROWS, sites=SITES, wire=wire).corrupt(attack, sites=["0", "2"])
    for model in (fs.FedPCA(2, solver="subspace_median"), fs.FedPCA(2), fs.FedStandardScaler()):
        with pytest.warns(UserWarning, match="left out.* columns, most sites have 4"):
            model.fit(fed)
        assert model.sites_ == tuple("13456789")
