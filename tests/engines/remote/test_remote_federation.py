"""Solvers that are no default give the bits of the embedded engine on a remote federation."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.progress import ProgressBar

from .network import Network


def sites():
    rng = np.random.default_rng(5)
    made = []
    for i, name in enumerate("abc"):
        X = rng.normal(size=(30 + i, 5)) * [4.0, 3.0, 2.0, 1.0, 0.5] + rng.choice([-4.0, 4.0], size=(30 + i, 1))
        made.append(fs.Site(name, X, X @ np.arange(5.0) * (-1) ** i))
    return made


ESTIMATORS = {
    "fedpg": (lambda: fs.FedPCA(2, solver="fedpg", max_rounds=5), "components_"),
    "k-means": (lambda: fs.FedKMeans(2), "cluster_centers_"),
    "mixture": (lambda: fs.FedMixedRegressor(2, start="random", max_rounds=5), "coef_"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_gives_the_bits_of_the_embedded_engine(name, tmp_path):
    make, attribute = ESTIMATORS[name]
    near = make().set_params(random_state=3).fit(fs.LocalFederation(sites()))
    with Network(sites(), tmp_path).federation() as fed:
        far = make().set_params(random_state=3).fit(fed)
    np.testing.assert_array_equal(getattr(far, attribute), getattr(near, attribute))
    assert far.run_.failures == []
    assert far.run_.bytes_up == near.run_.bytes_up


def test_progress_names_the_sites_that_a_run_waits_for(capsys):
    bar = ProgressBar()
    bar.began(fs.RunRecord("FedPCA", {}, 0, 0, ("a", "b")))
    bar._next_time = 0.0  # the run has taken long enough to show something
    bar.waiting(("b",))
    assert "waiting for b" in capsys.readouterr().err
