"""Rows that are read in blocks: what transforms make of them is kept where it is small."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.federation.site.row_stream import RowStream

ROWS = np.random.default_rng(0).normal(size=(50_000, 8)) + 3.0


class CountedStream(RowStream):
    """Rows in memory that count how often they are read."""

    label, shape, feature_names = "counted rows", ROWS.shape, None

    def __init__(self):
        self.passes = 0

    def batches(self, rows):
        self.passes += 1
        return (ROWS[at : at + rows] for at in range(0, len(ROWS), rows))

    def in_order(self, names):
        return self

    def stamp(self):
        return "counted"


@fs.transform("tests.two_lengths", affine=False)
def two_lengths(X):
    return np.stack([np.abs(X).sum(axis=1), (X * X).sum(axis=1)], axis=1)


@fs.transform("tests.added_lengths", affine=False)
def added_lengths(X):
    return X.sum(axis=1, keepdims=True)


def test_few_numbers_of_each_row_are_made_once_and_others_of_these():
    stream = CountedStream()
    fed = fs.LocalFederation([fs.Site("a", stream)])
    lengths = fed.apply(two_lengths)
    for _ in range(2):
        found = fs.FedStandardScaler().fit(lengths)
        np.testing.assert_allclose(found.mean_, two_lengths(ROWS).mean(axis=0), rtol=1e-12)
    for _ in range(2):
        found = fs.FedStandardScaler().fit(lengths.apply(added_lengths))
        np.testing.assert_allclose(found.mean_, two_lengths(ROWS).sum(axis=1).mean(), rtol=1e-12)
    assert stream.passes == 1
    fs.FedStandardScaler().fit(fed.apply(added_lengths))  # another view: of the rows
    assert stream.passes == 2
