"""The traffic that the detectors are tried on: which rows train, which test, and which site has which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.datasets import anomaly_split, load_ton_iot, load_unsw_nb15, split_blocks
from fedspan.engines.local.embedded import federate
from fedspan.federation import Federation

Matrix = NDArray[np.float64]
Order = Literal["random", "first", "last"]

SITES = 100
#: By data set: the column that sites are cut by, and the sizes of the split.
CUT_BY = {"UNSW-NB15": "ct_srv_src", "TON-IoT": "src_port"}
SIZES: dict[str, dict[str, Any]] = {
    "UNSW-NB15": {"train_normals": 17_000, "test_normals": 20_000},
    "TON-IoT": {"train_normals": 40_000, "test_normals": 10_000, "attacks": 56_557},
}
LOADERS: dict[str, Callable[[], Any]] = {"UNSW-NB15": load_unsw_nb15, "TON-IoT": load_ton_iot}
FAMILIES = {"UNSW-NB15": "attack_cat", "TON-IoT": "type"}


@dataclass(frozen=True)
class Traffic:
    """Normal rows to train on, by site; normal and attack rows to test with (1 is an attack), and their kinds."""

    name: str
    X_train: Matrix
    X_test: Matrix
    y_test: NDArray[np.int64]
    sites: NDArray[np.str_]
    features: NDArray[np.str_]
    kinds: NDArray[np.str_]

    def federation(self, seed: int = 0) -> Federation:
        """Return the embedded federation of the training rows."""
        return federate(self.X_train, sites=self.sites, seed=seed)


def traffic(name: str, *, seed: int = 0, log: bool = False, order: Order = "random", n_sites: int = SITES) -> Traffic:
    """Return a split of a data set; `log` takes the signed logarithm of every column first."""
    table = _loaded(name)
    split = anomaly_split(table, order=order, seed=seed, **SIZES[name])
    key = split.X_train[:, list(table.feature_names).index(CUT_BY[name])]
    change = signed_log if log else np.asarray
    return Traffic(
        name + (", log" if log else ""),
        change(split.X_train),
        change(split.X_test),
        split.y_test,
        split_blocks(key, n_sites),
        table.feature_names,
        table[FAMILIES[name]][split.test_rows],
    )


def held_out_hosts(*, seed: int = 0, log: bool = True) -> Traffic:
    """Return TON-IoT with the normal rows of a fifth of the source hosts kept for the test, and none of theirs trained.

    Hosts are drawn until the test has at least 10,000 normal rows, of which so many are taken.
    """
    table = _loaded("TON-IoT")
    rng = np.random.default_rng(seed)
    normal = np.flatnonzero(table.target == 0)
    hosts = rng.permutation(np.unique(table.src_ip[normal]))
    rows_of = {host: normal[table.src_ip[normal] == host] for host in hosts}
    test: list[NDArray[np.intp]] = []
    while sum(map(len, test)) < 10_000:
        test.append(rows_of.pop(next(iter(rows_of))))
    train = np.concatenate(list(rows_of.values()))
    attacks = rng.choice(np.flatnonzero(table.target != 0), SIZES["TON-IoT"]["attacks"], replace=False)
    tested = np.concatenate([rng.permutation(np.concatenate(test))[:10_000], attacks])
    change = signed_log if log else np.asarray
    X_train = table.data[train]
    return Traffic(
        "TON-IoT, log" if log else "TON-IoT",
        change(X_train),
        change(table.data[tested]),
        (table.target[tested] != 0).astype(np.int64),
        split_blocks(X_train[:, list(table.feature_names).index("src_port")], SITES),
        table.feature_names,
        table.type[tested],
    )


def signed_log(X: Matrix) -> Matrix:
    """Return ``sign(x) log(1 + |x|)``: heavy tails made short, zeros and signs kept."""
    return np.asarray(np.sign(X) * np.log1p(np.abs(X)), dtype=np.float64)


@lru_cache(maxsize=2)
def _loaded(name: str) -> Any:
    return LOADERS[name]()
