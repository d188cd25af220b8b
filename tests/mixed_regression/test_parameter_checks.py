"""Parameters of FedMixedRegressor that are out of range, or would have no effect."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.aggregation import GeometricMedian
from fedspan.errors import InputError

from .mixtures import mixture


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be a whole number of at least 1, or 'auto'"),
        ({"n_clusters": "many"}, "n_clusters='many'"),
        ({"n_clusters": 31}, "n_clusters=31 must be a whole number between 1 and 30, the number of sites"),
        ({"start": "kmeans"}, "start='kmeans' must be one of 'moment_descent', 'spectral', 'random'"),
        ({"update": "sgd"}, "update='sgd'"),
        ({"weights": "equal"}, "weights='equal'"),
        ({"assignment": "fuzzy"}, "assignment='fuzzy'"),
        ({"scaling": "minmax"}, "scaling='minmax'"),
        ({"loss": "hinge"}, "loss='hinge'"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"max_rounds": 1.5}, "max_rounds=1.5"),
        ({"tol": -1e-3}, "tol=-0.001 must be a finite number of at least 0"),
        ({"step_size": 0}, "step_size=0 must be a finite number above 0"),
        ({"acceleration": -1}, "acceleration=-1"),
        ({"aggregator": "median"}, "aggregator='median'"),
        ({"n_clusters": "auto", "aggregator": GeometricMedian()}, "trusts all sites"),
        ({"n_starts": 3}, "goes with start='random'"),
        ({"loss": "logistic", "update": "exact"}, "goes with update='fedavg', not with 'exact'"),
        ({"loss": "logistic", "p_min": 0.1}, "p_min=... is for the anchors"),
        ({"p_min": 0.6}, "p_min=0.6 must be a finite number above 0 and at most 0.5"),
        ({"start": "spectral", "p_min": 0.1}, "p_min=... is for the anchors"),
        ({"start": "random", "perturbation": 0.1}, "perturbation=... is for the anchors"),
        ({"features": "polynomial", "degree": 0}, "degree=0"),
        ({"features": "polynomial", "degree": 9}, "degree=9 must be"),
        ({"update": "exact", "step_size": 0.1}, "step_size=0.1 has no effect with update='exact'"),
        ({"update": "exact", "local_steps": 2}, "local_steps=2 has no effect with update='exact'"),
        ({"update": "fedprox", "local_steps": 2}, "local_steps=2 has no effect with update='fedprox'"),
        ({"degree": 3}, "degree=3 is for features='polynomial' or 'interactions'"),
        ({"max_clusters": 4}, "max_clusters=4 is for n_clusters='auto', not for 2"),
        ({"start": "spectral", "loss": "logistic"}, "needs the classes 0 and 1 in y"),
    ],
)
def test_bad_parameters_are_refused_before_any_request(options, words):
    made = mixture(22, sizes=(4,) * 30)
    with pytest.raises(InputError, match=words):
        fs.FedMixedRegressor(**{"n_clusters": 2, **options}).fit(made[0], made[1], sites=made[2])
