"""UNSW-NB15: network flows, normal and under attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of
from fedspan.datasets.bunch import Bunch, Source, dataset
from fedspan.datasets.data_folder import check_rows, find_file, read_numbers, read_text

PARTITION_FILE = "unsw_nb15_82332.csv.gz"
PARTITION_ROWS = 82_332
SAMPLE_FILE = "unsw_nb15_train_sample_10k.csv.gz"
SAMPLE_ROWS = 10_000

# The order of the FedPCA paper's 39 columns.
_FEATURES = """
    dur spkts dpkts sbytes dbytes rate sttl dttl sload dload sloss dloss sinpkt dinpkt sjit djit swin
    stcpb dtcpb dwin tcprtt synack ackdat smean dmean trans_depth response_body_len ct_srv_src
    ct_state_ttl ct_dst_ltm ct_src_dport_ltm ct_dst_sport_ltm ct_dst_src_ltm is_ftp_login ct_ftp_cmd
    ct_flw_http_mthd ct_src_ltm ct_srv_dst is_sm_ips_ports
"""
_NOT_IN_SAMPLE = """
    spkts dpkts sttl dttl sload dload sinpkt dinpkt tcprtt synack ackdat response_body_len ct_state_ttl
    is_ftp_login ct_ftp_cmd ct_flw_http_mthd is_sm_ips_ports
"""
FEATURES = tuple(_FEATURES.split())
SAMPLE_FEATURES = tuple(name for name in FEATURES if name not in _NOT_IN_SAMPLE.split())
SAMPLE_CATEGORIES = {
    "proto": ("tcp", "udp", "other"),
    "service": ("-", "http", "dns", "other"),
    "state": ("FIN", "INT", "other"),
}

_SOURCE = Source(
    name="UNSW-NB15, 82,332-row partition",
    publisher="N. Moustafa and J. Slay (MilCIS 2015), UNSW Canberra",
    where="the UNSW-NB15 page of UNSW Canberra (the partition's CSV file with 82,332 rows, compressed with gzip)",
    terms="free use for academic research in perpetuity; commercial use by agreement with the authors, "
    "whose papers are to be cited.",
)
_SAMPLE_SOURCE = replace(
    _SOURCE,
    name="UNSW-NB15, 10,000-row training sample",
    publisher=_SOURCE.publisher + "; sampled by the aucad/sensor-data repository",
    where="the aucad/sensor-data repository (its UNSW-NB15 sample, labels as 0 and 1, compressed with gzip)",
)
_ABOUT = (
    "Network flows in raw units, normal (37,000) or one of nine families of attack (45,332). Public copies "
    "often call this file the training set; the publisher calls it the testing set: go by the row count. "
    "Row order matters: sttl is 31 in most of the first 20,000 normal rows and never in the other 17,000, "
    "so a split by position is a strong shift. 26,387 rows repeat an earlier one, which flatters scores on "
    "the attacks. stcpb and dtcpb reach 4.29e9 and lose digits in float32. The FedPCA papers cut sites by "
    "ct_srv_src."
)
_SAMPLE_ABOUT = (
    "5,000 normal and 5,000 attack flows in raw units, drawn from the 175,341-row partition according to "
    "the repository that published them. Only 22 of the 39 columns are here (sttl and ct_state_ttl are "
    "not). Few rows also occur in the 82,332-row partition, so it can train what the partition then tests, "
    "on the shared columns. 1,425 rows repeat an earlier one."
)


def load_unsw_nb15(*, table: Literal["partition", "training_sample"] = "partition", categorical: bool = False) -> Bunch:
    """Load UNSW-NB15 from the data folder.

    Parameters
    ----------
    table : {"partition", "training_sample"}, default="partition"
        The official partition of 82,332 rows (``unsw_nb15_82332.csv.gz``), or 10,000 rows of the other,
        larger partition with 22 of the columns (``unsw_nb15_train_sample_10k.csv.gz``).
    categorical : bool, default=False
        Also return ``proto``, ``service`` and ``state`` as text. The sample knows only their most frequent
        values and ``"other"``.

    Returns
    -------
    Bunch
        ``data`` (82332, 39) or (10000, 22), float64, raw units; ``target``: 0 normal, 1 attack; for the
        partition ``attack_cat`` (n,), the family as text; with ``categorical`` also ``proto``, ``service``,
        ``state`` (n,). The rows keep the order of the file.

    Raises
    ------
    DataMissingError
        If the file is not in the data folder.

    Examples
    --------
    ::

        unsw = load_unsw_nb15(categorical=True)
        print(unsw.describe())
        sample = load_unsw_nb15(table="training_sample")
        shared = unsw.data[:, np.isin(unsw.feature_names, sample.feature_names)]
    """
    one_of("table", table, ("partition", "training_sample"))
    return _load_partition(categorical) if table == "partition" else _load_sample(categorical)


def _load_partition(categorical: bool) -> Bunch:
    path = find_file(PARTITION_FILE, _SOURCE)
    values = read_numbers(path, _SOURCE, [*FEATURES, "label"])
    text = read_text(path, _SOURCE, ["attack_cat", *(SAMPLE_CATEGORIES if categorical else ())])
    check_rows(len(values), PARTITION_ROWS, path, _SOURCE, hint=" (the other partition has 175,341)")
    return _bunch(_SOURCE, _ABOUT, values, FEATURES, text)


def _load_sample(categorical: bool) -> Bunch:
    path = find_file(SAMPLE_FILE, _SAMPLE_SOURCE)
    values = read_numbers(path, _SAMPLE_SOURCE, [*SAMPLE_FEATURES, "label"])
    check_rows(len(values), SAMPLE_ROWS, path, _SAMPLE_SOURCE)
    text = {name: _from_one_hot(path, name) for name in SAMPLE_CATEGORIES} if categorical else {}
    return _bunch(_SAMPLE_SOURCE, _SAMPLE_ABOUT, values, SAMPLE_FEATURES, text)


def _from_one_hot(path: Path, name: str) -> NDArray[np.str_]:
    values = SAMPLE_CATEGORIES[name]
    one_hot = read_numbers(path, _SAMPLE_SOURCE, [f"{name}={value}" for value in values])
    text: NDArray[np.str_] = np.array(values)[np.argmax(one_hot, axis=1)]
    return text


def _bunch(
    source: Source,
    about: str,
    values: NDArray[np.float64],
    features: tuple[str, ...],
    text: dict[str, NDArray[np.str_]],
) -> Bunch:
    return dataset(
        source,
        about,
        data=np.ascontiguousarray(values[:, :-1]),
        target=values[:, -1],
        feature_names=np.array(features),
        target_names=np.array(["normal", "attack"]),
        **text,
    )
