"""The search of all messages for rows: leaks planted in a protocol of one's own, and honest runs."""

from __future__ import annotations

import base64
import hashlib
import zlib

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

import fedspan as fs
from fedspan.audit import audit, audit_run
from fedspan.audit.parts.search_task import Findings
from fedspan.audit.row_search import RowSearch
from fedspan.errors import InputError, QuorumError

NAMES = [f"patient {i:03d}" for i in range(70)]


def low_bits(X, width, rows):
    """The sum of rows, with a row in the lowest bits of its entries."""
    total = np.ascontiguousarray(X.sum(axis=0))
    scaled = (X - X.min(axis=0)) / np.ptp(X, axis=0) * (2**width - 1)
    bits = total.view(np.int64) & ~np.int64(2**width - 1) | np.rint(scaled[rows]).astype(np.int64)
    return bits.view(np.float64)


def wrapped_bits(X, width, rows):
    """The same with fixed-point cells, of which only the lowest bits are kept."""
    total = np.ascontiguousarray(X.sum(axis=0))
    cells = np.floor(X[rows] * 2**10).astype(np.int64) & (2**width - 1)
    return (total.view(np.int64) & ~np.int64(2**width - 1) | cells).view(np.float64)


#: What a site sends, the search that finds it, and the number of rows that the three sites give away at least.
LEAKS = {
    "14 low bits of a sum": (lambda X: low_bits(X, 14, 3), "low bits", 3),
    "14 low bits, wrapped": (lambda X: wrapped_bits(X, 14, 3), "low bits", 3),
    "last decimals of a sum": (lambda X: np.round(X.sum(axis=0), 3) + 1e-7 * X[2], "low bits", 3),
    "the largest row as a centre": (lambda X: X[np.argmax(np.linalg.norm(X, axis=1))], "rows", 3),
    "all rows": (lambda X: X, "rows", 70),
    "all rows, transposed": (lambda X: X.T, "rows", 70),
    "all rows in one vector": (lambda X: X[:-1].ravel(), "rows", 67),
    "bytes of rows": (lambda X: np.frombuffer(X[:4].tobytes(), dtype=np.uint8), "rows", 12),
    "bits of single precision as whole numbers": (
        lambda X: X[5:9].astype(np.float32).view(np.int32).astype(np.int64),
        "rows",
        12,
    ),
    "single precision": (lambda X: X[5:9].astype(np.float32), "rows", 12),
    "rounded": (lambda X: np.round(X[5:9], 2), "rows", 12),
    "standardised": (lambda X: ((X - X.mean(axis=0)) / X.std(axis=0))[:3], "rows", 9),
    "a row times a factor": (lambda X: -0.37 * X[4], "scaled rows", 3),
    "a row times a factor, with an offset": (lambda X: 3 * X[4] - 11, "scaled rows", 3),
    "columns times factors, with offsets": (
        lambda X: X[3:8] * np.arange(2, 8) + np.arange(6) ** 2,
        "scaled columns",
        15,
    ),
    "two sums": (lambda X: np.stack([X.sum(axis=0), X[1:].sum(axis=0)]), "differences", 3),
    "two Gram matrices": (lambda X: np.stack([X.T @ X, X[1:].T @ X[1:]]), "differences", 3),
    "cells among other numbers": (lambda X: np.concatenate([np.arange(7) / 7, X[6, :2], [0.1]]), "cells", 3),
    "a score of each row": (lambda X: np.linalg.norm(X, axis=1), "arrays per row", 70),
    "numbers as text": (lambda X: " ".join(map(repr, X[0].tolist())), "rows", 3),
    "hexadecimal text": (lambda X: X[5].tobytes().hex(), "rows", 3),
    "big-endian hexadecimal texts of cells": (
        lambda X: np.array([x.astype(">f8").tobytes().hex() for x in X[5]]),
        "rows",
        3,
    ),
    "hexadecimal floats": (lambda X: " ".join(map(float.hex, X[0].tolist())), "rows", 3),
    "compressed base64": (lambda X: base64.b64encode(zlib.compress(X[5:7].tobytes())).decode(), "rows", 6),
    "base85": (lambda X: base64.b85encode(X[5:7].astype(np.float32).tobytes()).decode(), "rows", 6),
    "logarithms": (lambda X: np.log10(np.abs(X[3:5]) + 1), "functions", 6),
    "logistic values with a factor": (lambda X: 3 / (1 + np.exp(-X[3])) + 1, "functions", 3),
    "two means with their counts": (
        lambda X: np.stack([np.append(X.mean(axis=0), len(X)), np.append(X[1:].mean(axis=0), len(X) - 1)]),
        "differences",
        3,
    ),
    "two means of unknown parts": (lambda X: np.stack([X[:7].mean(axis=0), X[:6].mean(axis=0)]), "differences", 3),
    "two weighted sums": (lambda X: np.stack([2 * X.sum(axis=0), 5 * X[1:].sum(axis=0)]), "differences", 3),
    "the sum of two rows": (lambda X: X[2] + X[9], "two rows", 6),
    "the mean of two rows": (lambda X: X[[3, 8]].mean(axis=0), "two rows", 6),
    "rotated rows": (lambda X: 0.3 * X[4:8] @ rotation(6) + 2, "rotated rows", 12),
    "bits of a row with a constant": (lambda X: X[3].view(np.int64) ^ np.int64(0x5DEECE66D1234567), "XOR", 3),
    "inverted bytes of rows": (lambda X: ~np.frombuffer(X[:2].tobytes(), dtype=np.uint8), "XOR", 6),
    "hexadecimal text of inverted bytes": (lambda X: bytes(255 - one for one in X[5].tobytes()).hex(), "XOR", 3),
    "digests of rows": (lambda X: np.array([hashlib.sha256(x.tobytes()).hexdigest() for x in X[:3]]), "digests", 9),
    "digests of cells": (
        lambda X: " ".join(hashlib.md5(repr(x).encode()).hexdigest() for x in X[3].tolist()),
        "digests",
        3,
    ),
    "checksums of rows": (lambda X: np.array([zlib.crc32(x.tobytes()) for x in X[:5]]), "digests", 15),
    "inner products of rows": (lambda X: X[:9] @ X[:9].T, "rotated rows", 27),
    "bits of a row": (lambda X: np.unpackbits(X[8].view(np.uint8)), "rows", 3),
    "bits of a row as text": (lambda X: "".join(map(str, np.unpackbits(X[8].view(np.uint8)))), "rows", 3),
    "a mean less a row": (lambda X: X.mean(axis=0) - X[3], "scaled rows", 3),
    "powers of two": (lambda X: 2.0 ** (-X[2:5] / 8), "functions", 9),
    "a softmax": (lambda X: np.exp(X[2] / 40) / np.exp(X[2] / 40).sum(), "functions", 3),
    "distances of rows": (lambda X: np.linalg.norm(X[:9, None] - X[None, :9], axis=2), "rotated rows", 27),
    "rotated rows, transposed": (lambda X: (X[4:8] @ rotation(6)).T, "rotated rows", 12),
}


#: Found only where the rows' sites are known.
OF_A_SITE = {"standardised", "a score of each row", "a mean less a row"}


def rotation(m):
    return np.linalg.qr(np.random.default_rng(4).standard_normal((m, m)))[0]


@fs.step
def planted(site, what: str):
    X = np.asarray(site.X)
    return {"n": len(X), f"centre, {what}": LEAKS[what][0](X), "sum": X.sum(axis=0)}


@fs.step
def names_of(site, how: str):
    cells = np.asarray(site.X, dtype=object)[:, 6].astype(str)
    forms = {
        "array": cells[:2],
        "words": f"failed at {cells[0].upper().replace(' ', '_')}, again",
        "digest": hashlib.sha256(cells[0].encode()).hexdigest(),
        "base64": base64.b64encode(cells[0].encode()).decode(),
        "key": 1.0,
    }
    return {"cell": forms[how], str(cells[1]): 0.0}


def plant_all(fed):
    for what in LEAKS:
        fed.ask(planted, what=what)


def protocol(fed, step, **payload):
    fed.ask(step, **payload)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, size=(70, 6)) * [1, 3, 10, 2, 5, 1] + rng.normal(size=6)
    return X, np.repeat(["a", "b", "c"], [30, 22, 18])


def searches(card):
    return {entry.attack.removeprefix("search: "): entry for entry in card.entries if "search" in entry.attack}


@pytest.mark.parametrize("truth", ["by site", "in site order", "in another order"])
def test_planted_leaks_are_found_where_they_are(truth, table, tmp_path, monkeypatch):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fs.FedStandardScaler().fit(fed)
        fed.run(plant_all)
    made = []
    monkeypatch.setattr(audit_run, "RowSearch", lambda *parts: made.append(RowSearch(*parts)) or made[0])
    order = np.random.default_rng(5).permutation(len(X)) if truth == "in another order" else np.arange(len(X))
    card = audit(tmp_path, truth={name: X[sites == name] for name in "abc"} if truth == "by site" else X[order])
    found = made[0].findings.found
    for number, (what, (_, search, rows)) in enumerate(LEAKS.items()):
        if truth == "in another order" and what in OF_A_SITE:
            continue
        places = {place for place in found[search].places if (place.run, place.call) == ("run-001", number)}
        assert {place.site for place in places} == {"a", "b", "c"}, what
        assert len(found[search].rows) >= rows, what
        assert {(place.step.rpartition(".")[2], place.key) for place in places} == {("planted", f"centre, {what}")}, (
            what
        )
    assert not [place for one in found.values() for place in one.places if place.run == "run-000"]
    assert not [place for one in found.values() for place in one.places if place.key in ("n", "sum")]
    assert any("Searched for rows as they are" in remark for remark in card.remarks)
    assert all(search in str(searches(card)) for _, search, _ in LEAKS.values())


@pytest.mark.parametrize("how", ["array", "words", "digest", "base64", "key"])
def test_cells_of_text_are_found(how, table, tmp_path):
    X, sites = table
    frame = pd.DataFrame(X, columns=list("uvwxyz")).assign(name=NAMES, kind="ward")
    with fs.federate(frame, sites=sites, run_dir=tmp_path) as fed:
        fed.run(protocol, step=names_of, how=how)
    entry = searches(audit(tmp_path, truth=frame))["texts"]
    assert entry.facts["rows"] == (3 if how == "key" else 6)
    assert "names of keys" in entry.verdict
    other = frame.assign(name=[f"visitor {i}" for i in range(70)])
    assert "texts" not in searches(audit(tmp_path, truth=other))


@pytest.mark.parametrize("what", ["two sums", "two Gram matrices", "two means with their counts"])
def test_differences_of_few_columns_are_found_as_they_are(what, table, tmp_path):
    """In the plane of two messages of three columns every row is near: weights that are unknown find nothing."""
    X, sites = table
    with fs.federate(X[:, :3], sites=sites, run_dir=tmp_path) as fed:
        fed.run(protocol, step=planted, what=what)
    entry = searches(audit(tmp_path, truth=X[:, :3]))["differences"]
    assert entry.facts["rows"] >= 3
    assert what in entry.verdict


def test_rows_over_many_calls_and_as_single_numbers(table, tmp_path):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fed.run(one_number_a_call)
    entry = searches(audit(tmp_path, truth=X))["rows"]
    assert entry.facts["rows"] == 3
    assert "'value'" in entry.verdict


@fs.step
def one_cell(site, j: int):
    return {"value": float(np.asarray(site.X)[7, j])}


@fs.step
def failing(site):
    raise InputError(f"can't use {np.asarray(site.X)[2].tolist()}")


def test_reasons_of_failures_are_searched(table, tmp_path):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed, pytest.raises(QuorumError):
        fed.run(protocol, step=failing)
    entry = searches(audit(tmp_path, truth=X))["rows"]
    assert entry.facts["rows"] == 3
    assert "reason of a failure" in entry.verdict


@fs.step
def hostile_text(site):
    return {"note": "0x1p99999 -0x1p99999 1e99999", "digits": "0x" + "f" * 2**18, "n": len(site)}


def test_hostile_texts_stop_no_search(table, tmp_path):
    """Numbers that are too large for floats, and digits that took the square of their number."""
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fed.run(protocol, step=hostile_text)
    assert not searches(audit(tmp_path, truth=X))


def one_number_a_call(fed):
    for j in range(6):
        fed.ask(one_cell, j=j)


@pytest.mark.parametrize(("load", "seed"), [(load_iris, 0), (load_wine, 2), (load_breast_cancer, 2)])
def test_honest_runs_have_no_finding(load, seed, tmp_path):
    X = load().data
    X = X[np.random.default_rng(seed).permutation(len(X))[:150]]
    sites = np.random.default_rng(seed).integers(0, 4, len(X)).astype(str)
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        scaler = fs.FedStandardScaler().fit(fed)
        fs.FedPCA(2).fit(fed)
        fs.FedPCA(2, solver="subspace_iteration", random_state=seed).fit(scaler.transform(fed))
        fs.FedKMeans(4, least_rows=5, random_state=seed).fit(fed)
    card = audit(tmp_path, truth={site: X[sites == site] for site in np.unique(sites)}, preprocess=[scaler])
    assert searches(card) == {}
    assert "No row was found" in str(card)


def test_only_arrays_per_row_are_searched_for_without_the_truth(table, tmp_path):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fed.run(protocol, step=planted, what="a score of each row")
    card = audit(tmp_path)
    assert list(searches(card)) == ["arrays per row"]
    assert "need the true rows" in str(card)


def test_large_journals_are_searched_in_part_and_the_card_states_it(table, tmp_path, monkeypatch):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fed.run(protocol, step=planted, what="all rows")
    from fedspan.audit import sent_values

    monkeypatch.setattr(Findings, "WORK", 0)
    monkeypatch.setattr(sent_values, "MOST_NUMBERS", 200)
    card = audit(tmp_path, truth=X)
    assert 0 < searches(card)["rows"].facts["rows"] < 70
    assert "of each value the first" in str(card).replace("\n", " ")
