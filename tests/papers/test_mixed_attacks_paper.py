"""Byzantine sites of mixed regression: which rows and replies they change."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import SpectralFilter
from fedspan.mixed_regression.spectral_start import spectral_start
from fedspan.papers import mixed_attacks_paper as paper
from fedspan.papers.mixed_runs_paper import MixedSetting


@fs.step
def targets(site):
    """Leaves the site: its targets."""
    return {"y": site.y}


@pytest.fixture(scope="module")
def setting() -> MixedSetting:
    return MixedSetting("C1", paper.SEED)


@pytest.mark.parametrize("name", [paper.FLIP, paper.FAKE])
def test_only_the_targets_of_bad_sites_differ(setting, name):
    bad = paper._bad(setting, 0.1)
    assert len(bad) == 20
    attacked = paper._attacked(setting, name, bad)
    before, after = (fed.run(lambda run: run.ask(targets).stack("y")) for fed in (setting.federation, attacked))
    good = np.setdiff1d(np.arange(200), bad)
    np.testing.assert_array_equal(before[good], after[good])
    if name == paper.FLIP:
        np.testing.assert_array_equal(before[bad], -after[bad])
    else:
        assert np.all(np.abs(before[bad] - after[bad]).max(axis=1) > 0.1)


def test_a_start_is_stopped_by_huge_replies_and_saved_by_a_filter(setting):
    attacked = paper._attacked(setting, "huge", paper._bad(setting, 0.2))
    assert paper._start(attacked, spectral_start, None, setting) == "stopped"
    error, share = paper._start(attacked, spectral_start, SpectralFilter(), setting).split()
    assert float(error) < 0.7
    assert share == "(1.00)"
