"""Table loaders on small files made here, where every cell of the answer is known."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedspan.datasets import (
    load_mice_protein,
    load_ton_iot,
    load_unsw_nb15,
    mice_protein,
    ton_iot,
    unsw_nb15,
)
from fedspan.errors import InputError

Row = dict[str, object]


def write_csv(path: Path, rows: list[Row]) -> None:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


# ---- UNSW-NB15


def unsw_row(number: int, attack_cat: str, label: int) -> Row:
    # The columns in an order that is not ours: names must decide, not positions.
    numbers = {name: 100 * number + i for i, name in enumerate(unsw_nb15.FEATURES)}
    text = {"proto": f"p{number}", "service": "-", "state": f"S{number}", "attack_cat": attack_cat}
    return {"label": label, **text, **dict(reversed(numbers.items())), "id": number}


def test_unsw_columns_are_found_by_name(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsw_nb15, "PARTITION_ROWS", 2)
    write_csv(own_folder / "unsw_nb15_82332.csv.gz", [unsw_row(1, "Normal", 0), unsw_row(2, "Worms", 1)])
    made = load_unsw_nb15()
    assert made.data.tolist() == [[100.0 + i for i in range(39)], [200.0 + i for i in range(39)]]
    assert made.target.tolist() == [0, 1]
    assert made.attack_cat.tolist() == ["Normal", "Worms"]
    assert made.feature_names.tolist() == list(unsw_nb15.FEATURES)
    assert "proto" not in made
    categorical = load_unsw_nb15(categorical=True)
    assert categorical.proto.tolist() == ["p1", "p2"]
    assert categorical.service.tolist() == ["-", "-"]
    assert categorical.state.tolist() == ["S1", "S2"]


def test_the_other_unsw_partition_is_refused_by_its_row_count(own_folder: Path) -> None:
    write_csv(own_folder / "unsw_nb15_82332.csv.gz", [unsw_row(1, "Normal", 0)] * 3)
    with pytest.raises(InputError, match=r"holds 3 rows instead of 82,332 \(the other partition has 175,341\)"):
        load_unsw_nb15()


def test_the_unsw_sample_turns_one_hot_columns_into_text(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsw_nb15, "SAMPLE_ROWS", 3)
    columns = [f"{name}={value}" for name, values in unsw_nb15.SAMPLE_CATEGORIES.items() for value in values]
    picked = [
        ("proto=udp", "service=-", "state=other"),
        ("proto=tcp", "service=dns", "state=FIN"),
        ("proto=other", "service=other", "state=INT"),
    ]
    rows: list[Row] = [
        {
            **{column: int(column in chosen) for column in columns},
            **{name: 10 * n + i for i, name in enumerate(unsw_nb15.SAMPLE_FEATURES)},
            "label": n % 2,
        }
        for n, chosen in enumerate(picked)
    ]
    write_csv(own_folder / "unsw_nb15_train_sample_10k.csv.gz", rows)
    made = load_unsw_nb15(table="training_sample", categorical=True)
    assert made.data.shape == (3, 22)
    assert made.data[:, 3].tolist() == [3.0, 13.0, 23.0]
    assert made.target.tolist() == [0, 1, 0]
    assert made.proto.tolist() == ["udp", "tcp", "other"]
    assert made.service.tolist() == ["-", "dns", "other"]
    assert made.state.tolist() == ["other", "FIN", "INT"]
    assert "proto" not in load_unsw_nb15(table="training_sample")


# ---- TON_IoT


def ton_row(**changes: object) -> Row:
    row: Row = dict.fromkeys(ton_iot.NUMERIC, 0)
    row |= dict.fromkeys(ton_iot.FLAGS, "-") | {"http_trans_depth": "-", "dst_port": 80, "src_port": 1}
    row |= {"src_ip": "10.0.0.9", "proto": "tcp", "service": "-", "conn_state": "SF", "label": 0, "type": "normal"}
    return row | changes


@pytest.fixture
def three_flows(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    monkeypatch.setattr(ton_iot, "NETWORK_ROWS", 3)
    return [
        ton_row(src_port=4444, duration=2.5, dns_AA="T", dns_RD="F"),
        ton_row(src_ip="10.0.0.1", proto="udp", service="smb;gssapi", http_trans_depth=7, dst_port=65535),
        ton_row(conn_state="REJ", label=1, type="xss", weird_notice="F"),
    ]


def test_ton_coding(three_flows: list[Row], own_folder: Path) -> None:
    write_csv(own_folder / "ton_iot_network_211043.csv.gz", three_flows)
    made = load_ton_iot()
    column = dict(zip(made.feature_names.tolist(), made.data.T.tolist(), strict=True))
    assert made.data.shape == (3, 49)
    assert made.feature_names[0] == "src_port"
    assert column["src_port"] == [4444.0, 1.0, 1.0]
    assert column["duration"] == [2.5, 0.0, 0.0]
    assert column["dns_AA"] == [1.0, -1.0, -1.0]
    assert column["dns_RD"] == [0.0, -1.0, -1.0]
    assert column["weird_notice"] == [-1.0, -1.0, 0.0]
    assert column["http_trans_depth"] == [0.0, 7.0, 0.0]
    ones = {name for name in ton_iot.ONE_HOT if column[name][1] == 1.0}
    assert ones == {"proto_udp", "service_smb;gssapi", "conn_state_SF"}
    assert column["service_none"] == [1.0, 0.0, 1.0]
    assert column["conn_state_REJ"] == [0.0, 0.0, 1.0]
    assert made.type.tolist() == ["normal", "normal", "xss"]
    assert made.target.tolist() == [0, 0, 1]
    assert made.src_ip.tolist() == [0, 1, 0]
    assert made.dst_port.tolist() == [80, 65535, 80]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dns_AA": "maybe"}, "fails with KeyError"),
        ({"http_trans_depth": "deep"}, "fails with ValueError"),
        ({"service": "gopher"}, "holds an unknown value"),
        ({"proto": "tcp "}, "holds an unknown value"),
    ],
)
def test_unknown_ton_values_are_refused(change: Row, reason: str, three_flows: list[Row], own_folder: Path) -> None:
    write_csv(own_folder / "ton_iot_network_211043.csv.gz", [three_flows[0], three_flows[1] | change, three_flows[2]])
    with pytest.raises(InputError, match=reason):
        load_ton_iot()


def test_the_older_ton_release_is_refused_by_its_row_count(three_flows: list[Row], own_folder: Path) -> None:
    write_csv(own_folder / "ton_iot_network_211043.csv.gz", three_flows[:2])
    with pytest.raises(InputError, match=r"holds 2 rows instead of 3 \(the older release has 461,043\)"):
        load_ton_iot()


def test_ton_fedpca_rows_are_normal_then_attack(own_folder: Path) -> None:
    np.savez_compressed(
        own_folder / "ton_iot_fedpca_repo.npz",
        X_normal=np.zeros((35_036, 22), np.float32),
        X_abnormal=np.ones((21_034, 22), np.float32),
        X_abnormal_cat=np.full((21_094, 48), 2, np.float32),
        feature_names=np.array([f"f{i}" for i in range(22)]),
        feature_names_cat=np.array([f"g{i}" for i in range(48)]),
    )
    made = load_ton_iot(table="fedpca")
    assert made.data.dtype == np.float32
    assert np.array_equal(made.data[:, 0], made.target)
    assert np.bincount(made.target).tolist() == [35_036, 21_034]
    assert made.attacks_onehot.shape == (21_094, 48)
    assert made.attacks_onehot_names[47] == "g47"


# ---- mice


@pytest.fixture
def three_mice(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mice_protein, "ROWS", 4)
    levels = [(1.0, 5.0), ("", 7.0), (4.0, ""), (10.0, -0.5)]
    labels = [("309_1", "t-CS-m"), ("309_2", "t-CS-m"), ("J1_2_1", "c-SC-s"), ("J1_2_15", "c-SC-s")]
    rows: list[Row] = [
        {"MouseID": mouse}
        | dict.fromkeys(mice_protein.PROTEINS, 0.25)
        | {"BAD_N": first, "CaNA_N": second}
        | {"Genotype": "Control", "Treatment": "Saline", "Behavior": "S/C", "class": label}
        for (mouse, label), (first, second) in zip(labels, levels, strict=True)
    ]
    write_csv(own_folder / "mice_protein.csv.gz", rows)


@pytest.mark.parametrize(
    ("missing", "bad", "cana"),
    [
        ("keep", [1.0, np.nan, 4.0, 10.0], [5.0, 7.0, np.nan, -0.5]),
        ("mean", [1.0, 5.0, 4.0, 10.0], [5.0, 7.0, 11.5 / 3, -0.5]),
        ("drop", [1.0, 10.0], [5.0, -0.5]),
    ],
)
@pytest.mark.usefixtures("three_mice")
def test_missing_protein_levels(missing: str, bad: list[float], cana: list[float]) -> None:
    made = load_mice_protein(missing=missing)
    assert made.data.shape == (len(bad), 77)
    np.testing.assert_allclose(made.data[:, made.feature_names == "BAD_N"].ravel(), bad)
    np.testing.assert_allclose(made.data[:, made.feature_names == "CaNA_N"].ravel(), cana)
    kept = [0, 3] if missing == "drop" else [0, 1, 2, 3]
    assert made.mouse_id.tolist() == np.array(["309", "309", "J1_2", "J1_2"])[kept].tolist()
    assert made.target.tolist() == np.array([1, 1, 0, 0])[kept].tolist()
    assert made.target_names.tolist() == ["c-SC-s", "t-CS-m"]
    assert len(made.genotype) == len(made.treatment) == len(made.behavior) == len(bad)


@pytest.mark.usefixtures("three_mice")
def test_a_mouse_table_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mice_protein, "ROWS", 1_080)
    with pytest.raises(InputError, match="holds 4 rows instead of 1,080"):
        load_mice_protein()
