"""Data sets, ways to deal them to sites, and generators that know the truth.

Loaders read files from the folder named by the environment variable ``FEDSPAN_DATA`` (by default ``fedspan``
in the user's cache). Nothing is downloaded, and nothing is read before a loader is called. Every loader and
generator returns a `Bunch`, whose ``describe()`` lists what it holds.

Examples
--------
>>> from fedspan.datasets import load_digits, split_by_label
>>> digits = load_digits()
>>> sorted(set(split_by_label(digits.target).tolist()))[:2]
['site-00', 'site-01']
"""

from __future__ import annotations

from fedspan.datasets.anomaly_split import anomaly_split
from fedspan.datasets.bunch import Bunch
from fedspan.datasets.bundled import load_breast_cancer, load_digits
from fedspan.datasets.coil20 import load_coil20
from fedspan.datasets.data_folder import data_folder
from fedspan.datasets.few_shot_tasks import make_few_shot_tasks
from fedspan.datasets.mice_protein import load_mice_protein
from fedspan.datasets.mnist import load_fashion_mnist, load_mnist
from fedspan.datasets.regression_mixtures import make_mixed_regression
from fedspan.datasets.splitters import (
    split_blocks,
    split_by_label,
    split_dirichlet,
    split_heavy_tailed,
    split_iid,
)
from fedspan.datasets.subspace_sites import make_subspace_sites
from fedspan.datasets.ton_iot import load_ton_iot
from fedspan.datasets.unsw_nb15 import load_unsw_nb15

__all__ = [
    "Bunch",
    "anomaly_split",
    "data_folder",
    "load_breast_cancer",
    "load_coil20",
    "load_digits",
    "load_fashion_mnist",
    "load_mice_protein",
    "load_mnist",
    "load_ton_iot",
    "load_unsw_nb15",
    "make_few_shot_tasks",
    "make_mixed_regression",
    "make_subspace_sites",
    "split_blocks",
    "split_by_label",
    "split_dirichlet",
    "split_heavy_tailed",
    "split_iid",
]
