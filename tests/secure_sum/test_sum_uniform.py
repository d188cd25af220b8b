"""One site's masked reply tells nothing of its part: statistically, it is uniform whatever the part."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

import fedspan as fs

from .players import NUMBERS, Players

COUNT = 4000
REPEATS = 6


@fs.step
def plain_part(site, factor):
    return {"zero": np.zeros(COUNT, dtype=np.int64), "x": np.full(COUNT, factor)}


def masked_replies(factor):
    """Masked replies of one site, each of a sum of its own."""
    players = Players(3)
    found = []
    for k in range(REPEATS):
        sent = {"session": f"run/{k}/a", "what": f"{__name__}.plain_part", "factor": factor}
        group = players.group(players.offers(**sent), sent["session"])
        shares = players.shared(group)
        reply = players.masked("s01", shares, sent["session"])
        found.append(np.concatenate([reply["whole"].ravel(), reply["real"].ravel()]))
    return np.stack(found)


@pytest.fixture(scope="module")
def replies():
    return {factor: masked_replies(factor) for factor in (0.0, 1e20)}


def chi_square(counts):
    """Return the chance of counts as uneven as these, if all were equally likely."""
    expected = counts.sum() / counts.size
    return chi2.sf(np.sum((counts - expected) ** 2) / expected, counts.size - 1)


@pytest.mark.parametrize("factor", [0.0, 1e20])
def test_bytes_bits_and_values_are_uniform(replies, factor):
    words = replies[factor]
    in_bytes = words.view(np.uint8).reshape(-1, 8)
    for place in range(8):
        assert chi_square(np.bincount(in_bytes[:, place], minlength=256)) > 1e-6
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).sum(axis=0)
    n = words.size
    assert np.all(np.abs(bits - n / 2) < 6 * np.sqrt(n) / 2)
    assert kstest(words.ravel() / 2.0**64, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("factor", [0.0, 1e20])
def test_neighbours_and_repeated_sums_have_nothing_in_common(replies, factor):
    words = replies[factor] / 2.0**64
    n = words.shape[1]
    for row in words:
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 6 / np.sqrt(n)
    between = np.corrcoef(words)[np.triu_indices(REPEATS, 1)]
    assert np.max(np.abs(between)) < 6 / np.sqrt(n)
    assert len(np.unique(replies[factor])) == replies[factor].size


def test_two_parts_cannot_be_told_apart(replies):
    """The same test that finds an unmasked part at once finds no difference between the masked ones."""
    low, high = (replies[factor].ravel() / 2.0**64 for factor in (0.0, 1e20))
    assert kstest(low, high).pvalue > 1e-6
    bare = NUMBERS.encoded(np.full(COUNT, 1e20)).ravel() / 2.0**64
    assert kstest(bare, "uniform").pvalue < 1e-12
