"""The real files, where they are there: shapes, counts and the traps that the descriptions state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedspan.datasets import (
    Bunch,
    anomaly_split,
    load_coil20,
    load_fashion_mnist,
    load_mice_protein,
    load_mnist,
    load_ton_iot,
    load_unsw_nb15,
    split_blocks,
)

pytestmark = pytest.mark.slow
RealFile = Callable[[str], Path]


def distinct(rows: np.ndarray) -> int:
    rows = np.ascontiguousarray(rows)
    return len(set(map(bytes, rows)))


# ---- UNSW-NB15


def test_unsw_counts(unsw: Bunch) -> None:
    assert unsw.data.shape == (82_332, 39)
    assert np.bincount(unsw.target).tolist() == [37_000, 45_332]
    assert np.array_equal(unsw.attack_cat == "Normal", unsw.target == 0)
    assert len(set(unsw.attack_cat.tolist())) == 10
    assert np.isfinite(unsw.data).all()
    assert distinct(unsw.data[unsw.target == 0]) <= 34_204  # fewer than with the categories


def test_unsw_equals_the_arrays_made_from_it(unsw: Bunch, real_file: RealFile) -> None:
    with np.load(real_file("unsw_nb15_82332.npz"), allow_pickle=False) as arrays:
        assert np.array_equal(unsw.data.astype(np.float32), arrays["X"])
        assert np.array_equal(unsw.feature_names, arrays["feature_names"])
        assert np.array_equal(unsw.target, arrays["label"])
        for name in ("attack_cat", "proto", "service", "state"):
            assert np.array_equal(unsw[name], arrays[f"{name}_names"][arrays[name]])


def test_unsw_row_order_is_a_shift(unsw: Bunch) -> None:
    sttl = unsw.data[unsw.target == 0, unsw.feature_names == "sttl"]
    assert round((sttl[:20_000] == 31).mean(), 3) == 0.835
    assert not (sttl[20_000:] == 31).any()


def test_unsw_repeated_rows(unsw: Bunch) -> None:
    text = np.unique(np.stack([unsw[k] for k in ("proto", "service", "state", "attack_cat")]), return_inverse=True)[1]
    whole = np.column_stack([unsw.data, text.reshape(4, -1).T.astype(float)])
    assert len(whole) - distinct(whole) == 26_387


def test_unsw_splits(unsw: Bunch) -> None:
    random = anomaly_split(unsw, 17_000)
    assert random.X_train.shape == (17_000, 39)
    assert np.bincount(random.y_test).tolist() == [20_000, 45_332]
    shifted = anomaly_split(unsw, 17_000, order="last")
    normal = unsw.data[unsw.target == 0]
    assert np.array_equal(shifted.X_test[:20_000], normal[:20_000])
    assert np.array_equal(shifted.X_train, normal[20_000:])
    blocks = split_blocks(random.X_train[:, unsw.feature_names == "ct_srv_src"].ravel(), 100)
    assert set(np.unique(blocks, return_counts=True)[1].tolist()) == {170}


def test_unsw_sample(unsw: Bunch, real_file: RealFile) -> None:
    real_file("unsw_nb15_train_sample_10k.csv.gz")
    sample = load_unsw_nb15(table="training_sample", categorical=True)
    assert sample.data.shape == (10_000, 22)
    assert np.bincount(sample.target).tolist() == [5_000, 5_000]
    assert set(sample.service.tolist()) == {"-", "http", "dns", "other"}
    shared = np.isin(unsw.feature_names, sample.feature_names)
    assert unsw.feature_names[shared].tolist() == sample.feature_names.tolist()
    repeats = len(sample.data) - distinct(np.column_stack([sample.data, sample.target]))
    assert repeats == 1_425
    known = set(map(bytes, np.ascontiguousarray(unsw.data[:, shared])))
    met = np.array([bytes(row) in known for row in sample.data])
    assert round(met[sample.target == 0].mean(), 3) == 0.046
    assert round(met[sample.target == 1].mean(), 3) == 0.104


# ---- TON_IoT


def test_ton_counts(ton: Bunch) -> None:
    assert ton.data.shape == (211_043, 49)
    assert np.bincount(ton.target).tolist() == [50_000, 161_043]
    counts = Counter(ton.type.tolist())
    assert counts.pop("normal") == 50_000
    assert counts.pop("mitm") == 1_043
    assert set(counts.values()) == {20_000}
    assert len(np.unique(ton.src_ip)) == 51
    assert len(np.unique(ton.src_ip[ton.target == 0])) == 40


def test_ton_equals_the_arrays_made_from_it(ton: Bunch, real_file: RealFile) -> None:
    with np.load(real_file("ton_iot_network_49.npz"), allow_pickle=False) as arrays:
        assert np.array_equal(ton.data.astype(np.float32), arrays["X"])
        assert np.array_equal(ton.feature_names, arrays["feature_names"])
        assert np.array_equal(ton.target, arrays["label"])
        assert np.array_equal(ton.type, arrays["type_names"][arrays["type"]])
        assert np.array_equal(ton.src_ip, arrays["src_ip"])
        assert np.array_equal(ton.dst_port, arrays["dst_port"])
        assert np.array_equal(ton.data[:, 0], arrays["src_port"])


def test_ton_constant_columns_and_repeated_rows(ton: Bunch) -> None:
    normal = ton.data[ton.target == 0]
    constant = ton.feature_names[np.ptp(normal, axis=0) == 0]
    assert ton.feature_names[np.ptp(ton.data, axis=0) == 0].tolist() == ["service_dhcp"]
    assert len(constant) == 7
    assert distinct(normal.astype(np.float32)) == 41_892


def test_ton_split(ton: Bunch) -> None:
    split = anomaly_split(ton, 40_000, attacks=56_557)
    assert split.X_train.shape == (40_000, 49)
    assert np.bincount(split.y_test).tolist() == [10_000, 56_557]
    assert set(np.unique(split_blocks(split.X_train[:, 0], 100), return_counts=True)[1].tolist()) == {400}


def test_ton_fedpca_rows(real_file: RealFile) -> None:
    real_file("ton_iot_fedpca_repo.npz")
    made = load_ton_iot(table="fedpca")
    assert made.data.shape == (56_070, 22)
    assert made.attacks_onehot.shape == (21_094, 48)
    assert np.array_equal(made.attacks_onehot_names[:22], made.feature_names)


# ---- images


def test_mnist(real_file: RealFile) -> None:
    real_file("mnist.npz")
    made = load_mnist(part="all")
    assert made.data.shape == (70_000, 784)
    assert round(made.data[:60_000].mean(), 3) == 33.318
    assert round(made.data[60_000:].mean(), 3) == 33.791
    assert np.bincount(made.target[:60_000])[[0, 1]].tolist() == [5923, 6742]


def test_fashion_mnist(real_file: RealFile) -> None:
    real_file("fashion_mnist_t10k.npz")
    made = load_fashion_mnist()
    assert made.data.shape == (10_000, 784)
    assert set(np.bincount(made.target)) == {1_000}
    assert made.target_names[made.target[0]] == "ankle boot"


def test_coil20(real_file: RealFile) -> None:
    real_file("coil20_32x32.npz")
    made = load_coil20()
    assert made.data.shape == (1440, 1024)
    assert np.array_equal(made.target * 72 + made.view, np.arange(1440))


# ---- mice


def test_mice(real_file: RealFile) -> None:
    real_file("mice_protein.csv.gz")
    made = load_mice_protein()
    assert made.data.shape == (1080, 77)
    assert np.isnan(made.data).sum() == 1396
    assert np.isnan(made.data).any(axis=0).sum() == 49
    assert set(Counter(made.mouse_id.tolist()).values()) == {15}
    assert np.bincount(made.target).tolist() == [150, 135, 150, 135, 135, 105, 135, 135]
    assert all(len(set(made.target[made.mouse_id == mouse])) == 1 for mouse in set(made.mouse_id.tolist()))
    assert len(load_mice_protein(missing="drop").data) == 552
    assert not np.isnan(load_mice_protein(missing="mean").data).any()


def test_mice_equal_the_arrays_made_from_them(real_file: RealFile) -> None:
    real_file("mice_protein.csv.gz")
    made = load_mice_protein()
    with np.load(real_file("mice_protein.npz"), allow_pickle=False) as arrays:
        assert np.array_equal(made.data.astype(np.float32), arrays["X"], equal_nan=True)
        assert np.array_equal(made.target, arrays["y"])
        for ours, theirs in {"feature_names": "feature_names", "target_names": "class_names"}.items():
            assert np.array_equal(made[ours], arrays[theirs])
        for name in ("mouse_id", "genotype", "treatment", "behavior"):
            assert np.array_equal(made[name], arrays[name])
