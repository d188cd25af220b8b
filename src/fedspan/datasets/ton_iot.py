"""TON_IoT: network flows of an Internet-of-Things test bed, normal and under attack."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of
from fedspan.datasets.bunch import Bunch, Source, dataset
from fedspan.datasets.data_folder import check_rows, damaged, find_file, read_npz, read_numbers, read_text, reading

NETWORK_FILE = "ton_iot_network_211043.csv.gz"
NETWORK_ROWS = 211_043
FEDPCA_FILE = "ton_iot_fedpca_repo.npz"

# The order of the FedPCA paper's 49 columns: the port, 22 numeric columns, 26 one-hot columns.
_NUMERIC = """
    duration src_bytes dst_bytes missed_bytes src_pkts src_ip_bytes dst_pkts dst_ip_bytes dns_qclass dns_qtype
    dns_rcode dns_AA dns_RD dns_RA dns_rejected ssl_resumed ssl_established http_trans_depth
    http_request_body_len http_response_body_len http_status_code weird_notice
"""
NUMERIC = tuple(_NUMERIC.split())
# These hold T, F or "-" (not seen); the depth holds a number or "-".
FLAGS = ("dns_AA", "dns_RD", "dns_RA", "dns_rejected", "ssl_resumed", "ssl_established", "weird_notice")
FLAG_CODES = {"T": 1.0, "F": 0.0, "-": -1.0}
DEPTH = "http_trans_depth"
CATEGORIES = {
    "proto": ("icmp", "tcp", "udp"),
    "service": ("dce_rpc", "dhcp", "dns", "ftp", "gssapi", "http", "-", "smb", "smb;gssapi", "ssl"),
    "conn_state": (
        "OTH",
        "REJ",
        "RSTO",
        "RSTOS0",
        "RSTR",
        "RSTRH",
        "S0",
        "S1",
        "S2",
        "S3",
        "SF",
        "SH",
        "SHR",
    ),
}
ONE_HOT = tuple(
    f"{name}_{'none' if value == '-' else value}" for name, values in CATEGORIES.items() for value in values
)

_CLASSES = np.array(["normal", "attack"])
_SOURCE = Source(
    name="TON_IoT network flows, 211,043-row release",
    publisher="N. Moustafa and co-authors, UNSW Canberra Cyber and IoT Lab",
    where="the TON_IoT page of UNSW Canberra (the Train_Test_Network CSV file with 211,043 rows, compressed with gzip)",
    terms="free for academic research, the listed papers to be cited; commercial use by agreement "
    "(check with the publisher before redistribution).",
)
_FEDPCA_SOURCE = replace(
    _SOURCE,
    name="TON_IoT network flows, FedPCA repository rows",
    publisher=_SOURCE.publisher + "; prepared by the repository dual-grp/FedPCA_AnomalyDetection (MIT licence)",
    where="the repository dual-grp/FedPCA_AnomalyDetection (its TON test tables as arrays X_normal, "
    "X_abnormal, X_abnormal_cat, feature_names and feature_names_cat)",
)
_ABOUT = (
    "Network flows in raw units, normal (50,000) or one of nine types of attack (161,043), in the 49-column "
    "layout of the FedPCA paper (its order is inferred): src_port, 22 numeric and 26 one-hot columns. T, F "
    "and '-' are 1, 0 and -1; an absent http_trans_depth is 0. service_dhcp is zero everywhere and six more "
    "columns are constant among the normal rows, so standardising must guard against zero variance. Only "
    "41,892 normal rows are distinct. The paper has more normal rows, from the older release with 461,043. "
    "The FedPCA papers cut sites by src_port."
)
_FEDPCA_ABOUT = (
    "35,036 normal, then 21,034 attack flows in raw units with 22 numeric columns, published with the "
    "FedPCA code; earlier test tables, not the paper's final split. The normal rows come from the "
    "461,043-row release; attacks_onehot holds 21,094 attack rows with 26 more one-hot columns."
)


def load_ton_iot(*, table: Literal["network", "fedpca"] = "network") -> Bunch:
    """Load TON_IoT network flows from the data folder.

    Parameters
    ----------
    table : {"network", "fedpca"}, default="network"
        The 211,043-row release in 49 columns (``ton_iot_network_211043.csv.gz``), or the 56,070 rows in 22
        columns that were published with the FedPCA code (``ton_iot_fedpca_repo.npz``).

    Returns
    -------
    Bunch
        ``data`` (211043, 49) float64 or (56070, 22) float32, raw units; ``target``: 0 normal, 1 attack. For
        ``"network"`` also ``type`` (n,), the attack as text, ``src_ip`` (n,), the source host as a number in
        order of appearance, and ``dst_port`` (n,). For ``"fedpca"`` also ``attacks_onehot`` (21094, 48) and
        ``attacks_onehot_names``. The rows keep the order of the file.

    Raises
    ------
    DataMissingError
        If the file is not in the data folder.
    """
    one_of("table", table, ("network", "fedpca"))
    return _load_network() if table == "network" else _load_fedpca()


def _load_network() -> Bunch:
    path = find_file(NETWORK_FILE, _SOURCE)
    plain = [name for name in NUMERIC if name not in (*FLAGS, DEPTH)]
    values = read_numbers(path, _SOURCE, ["src_port", "dst_port", "label", *plain])
    check_rows(len(values), NETWORK_ROWS, path, _SOURCE, hint=" (the older release has 461,043)")
    text = read_text(path, _SOURCE, ["src_ip", "type", *CATEGORIES, *FLAGS, DEPTH])
    src_port, dst_port, label = values.T[:3]
    columns = dict(zip(plain, values.T[3:], strict=True))
    with reading(path, _SOURCE):  # an unknown flag or depth
        columns |= {name: _flag(text[name]) for name in FLAGS}
        columns[DEPTH] = np.where(text[DEPTH] == "-", "0", text[DEPTH]).astype(np.float64)
    one_hot = np.column_stack([text[name] == value for name, known in CATEGORIES.items() for value in known])
    if (one_hot.sum(axis=1) != len(CATEGORIES)).any():
        raise damaged(path, _SOURCE, f"one of its columns {', '.join(CATEGORIES)} holds an unknown value")
    return dataset(
        _SOURCE,
        _ABOUT,
        data=np.column_stack([src_port, *(columns[name] for name in NUMERIC), one_hot]),
        target=label,
        feature_names=np.array(["src_port", *NUMERIC, *ONE_HOT]),
        target_names=_CLASSES,
        type=text["type"],
        src_ip=_in_order_of_appearance(text["src_ip"]),
        dst_port=dst_port.astype(np.int64),
    )


def _load_fedpca() -> Bunch:
    path = find_file(FEDPCA_FILE, _FEDPCA_SOURCE)
    arrays = read_npz(
        path,
        _FEDPCA_SOURCE,
        {
            "X_normal": ("f", (35_036, 22)),
            "X_abnormal": ("f", (21_034, 22)),
            "X_abnormal_cat": ("f", (21_094, 48)),
            "feature_names": ("U", (22,)),
            "feature_names_cat": ("U", (48,)),
        },
    )
    normal, attack = arrays["X_normal"], arrays["X_abnormal"]
    return dataset(
        _FEDPCA_SOURCE,
        _FEDPCA_ABOUT,
        data=np.concatenate([normal, attack]),
        target=np.repeat([0, 1], [len(normal), len(attack)]),
        feature_names=arrays["feature_names"],
        target_names=_CLASSES,
        attacks_onehot=arrays["X_abnormal_cat"],
        attacks_onehot_names=arrays["feature_names_cat"],
    )


def _flag(cells: NDArray[np.str_]) -> NDArray[np.float64]:
    seen, where = np.unique(cells, return_inverse=True)
    return np.array([FLAG_CODES[str(cell)] for cell in seen])[where]


def _in_order_of_appearance(cells: NDArray[np.str_]) -> NDArray[np.int64]:
    _, first, where = np.unique(cells, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[where].astype(np.int64)
