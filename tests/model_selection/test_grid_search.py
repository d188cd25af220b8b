"""Grid search on federations."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError
from fedspan.model_selection import cross_validate, grid_search


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(200, 6))
    return fs.federate(X, sites=np.arange(200) % 4)


def test_the_best_combination_is_fitted_on_all_rows(fed):
    pipeline = make_pipeline(fs.FedStandardScaler(with_std=False), fs.FedPCA())
    found = grid_search(pipeline, {"fedpca__n_components": [1, 2, 4]}, fed, cv=3)
    assert found.best_parameters == {"fedpca__n_components": 2}
    assert found.scores.shape == (3, 3)
    expected = cross_validate(make_pipeline(fs.FedStandardScaler(with_std=False), fs.FedPCA(2)), fed, cv=3)[
        "test_score"
    ]
    np.testing.assert_array_equal(found.scores[1], expected)
    assert found.best_score == expected.mean()
    np.testing.assert_array_equal(
        found.model[-1].components_, pipeline.set_params(fedpca__n_components=2).fit(fed)[-1].components_
    )
    frame = found.to_frame()
    assert frame["fedpca__n_components"].iloc[0] == 2
    assert frame["mean_score"].is_monotonic_decreasing


def test_without_a_fit_of_the_best_and_by_sites(fed):
    found = grid_search(
        fs.FedKMeans(), [{"n_clusters": [2]}, {"n_clusters": [3], "least_rows": [5]}], fed, "sites", refit=False
    )
    assert found.model is None
    assert found.scores.shape == (2, 4)


@pytest.mark.parametrize("grid", [{}, {"n_components": []}, 3, {"n_components": 2}])
def test_wrong_grids_are_refused(fed, grid):
    if grid == {}:
        assert len(grid_search(fs.FedPCA(2), grid, fed, cv=2).parameters) == 1
        return
    with pytest.raises(InputError, match="grid"):
        grid_search(fs.FedPCA(), grid, fed, cv=2)


def test_one_score_chooses(fed):
    with pytest.raises(InputError, match="one score"):
        grid_search(fs.FedPCA(), {"n_components": [1]}, fed, scoring=["log_likelihood"])
