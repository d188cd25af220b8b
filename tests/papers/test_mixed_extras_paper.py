"""What goes beyond the paper's figures on mixed regression, on few seeds."""

from __future__ import annotations

import pytest

from fedspan.papers import mixed_extras_paper as mixed_extras


@pytest.mark.slow
def test_new_clients_of_c3_are_told_their_cluster():
    table = mixed_extras.new_clients([300], 500)
    right = {int(row[0]): (float(row[1]), float(row[2])) for row in table.rows}
    assert right[2][0] >= 0.93
    assert right[3][0] >= 0.98
    for accuracy, confidence in right.values():
        assert confidence == pytest.approx(accuracy, abs=0.03)


@pytest.mark.slow
def test_missed_clusters_are_seen_and_found():
    table = dict(mixed_extras.missed_clusters([412, 429]).rows)  # where the first ten anchors miss one
    assert table["the first ten anchors miss a cluster"] == "2"
    assert table["... seen by the linkage gap or the losses"] == "2 of 2"
    assert table["... and all clusters found in the end"] == "2 of 2"
