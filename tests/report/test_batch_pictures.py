"""Pictures of a correction of batches."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.report.models.batch_pictures import effects_by_batch

from .report_reading import Fitted, Page


def test_bars_are_as_long_as_the_effects_of_the_last_round():
    effects = np.zeros((2, 2, 3, 4))
    effects[1, 0], effects[1, 1], effects[0] = 1.0, 3.0, 9.0
    model = Fitted(effects_=effects, cluster_sizes_=np.array([5.0, 5.0, 0.0]), batches_=("north", "south"))
    page = Page(effects_by_batch(model).body)
    widths = [float(a["width"]) for a in page.all("rect")]
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.01)
    assert {"north", "south"} <= set(page.words)
    assert effects_by_batch(Fitted(effects_=effects, cluster_sizes_=np.ones(3))) is None
