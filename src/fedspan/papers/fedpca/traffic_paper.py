"""The traffic that the detectors are tried on: which rows train, which test, and which site has which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.datasets import anomaly_split, load_ton_iot, load_unsw_nb15, split_blocks
from fedspan.engines.local.embedded import federate
from fedspan.federation import Federation

Order = Literal["random", "first", "last"]

SITES = 100


class TrafficSource(NamedTuple):
    """A data set: its loader, the column that sites are cut by, the column of attack kinds, and the split's sizes."""

    load: Any
    cut_by: str
    kinds: str
    sizes: dict[str, Any]


SOURCES = {
    "UNSW-NB15": TrafficSource(
        load_unsw_nb15, "ct_srv_src", "attack_cat", {"train_normals": 17_000, "test_normals": 20_000}
    ),
    "TON-IoT": TrafficSource(
        load_ton_iot, "src_port", "type", {"train_normals": 40_000, "test_normals": 10_000, "attacks": 56_557}
    ),
}


@dataclass(frozen=True)
class Traffic:
    """Normal rows to train on, by site; normal and attack rows to test with (1 is an attack), and their kinds."""

    table: str
    name: str
    X_train: Matrix
    X_test: Matrix
    y_test: NDArray[np.int64]
    sites: NDArray[np.str_]
    features: NDArray[np.str_]
    kinds: NDArray[np.str_]

    @classmethod
    def of(cls, name: str, train: Any, test: Any, *, log: bool, n_sites: int = SITES) -> Traffic:
        """Return the traffic of rows by number; `log` takes the signed logarithm of every column."""
        table, source = _loaded(name), SOURCES[name]
        key = table.data[train, list(table.feature_names).index(source.cut_by)]
        X_train, X_test = ((signed_log if log else np.asarray)(table.data[rows]) for rows in (train, test))
        attack = (table.target[test] != 0).astype(np.int64)
        sites, kinds = split_blocks(key, n_sites), table[source.kinds][test]
        return cls(name, name + (", log" if log else ""), X_train, X_test, attack, sites, table.feature_names, kinds)

    def federation(self, seed: int = 0) -> Federation:
        """Return the embedded federation of the training rows."""
        return federate(self.X_train, sites=self.sites, seed=seed)


def traffic(name: str, seed: int = 0, *, log: bool = False, order: Order = "random", n_sites: int = SITES) -> Traffic:
    """Return a split of a data set."""
    split = anomaly_split(_loaded(name), order=order, seed=seed, **SOURCES[name].sizes)
    return Traffic.of(name, split.train_rows, split.test_rows, log=log, n_sites=n_sites)


def held_out_hosts(seed: int = 0) -> Traffic:
    """Return TON-IoT, logarithmic, tested with the normal rows of hosts of which no row trains.

    Source hosts are drawn until these have at least 10,000 normal rows, of which 10,000 are taken.
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
    attacks = rng.choice(np.flatnonzero(table.target != 0), SOURCES["TON-IoT"].sizes["attacks"], replace=False)
    tested = np.concatenate([rng.permutation(np.concatenate(test))[:10_000], attacks])
    return Traffic.of("TON-IoT", train, tested, log=True)


def signed_log(X: Matrix) -> Matrix:
    """Return ``sign(x) log(1 + |x|)``: heavy tails made short, zeros and signs kept."""
    return np.asarray(np.sign(X) * np.log1p(np.abs(X)), dtype=np.float64)


@lru_cache(maxsize=2)
def _loaded(name: str) -> Any:
    return SOURCES[name].load()
