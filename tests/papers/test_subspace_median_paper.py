"""The paper's numbers: means over a few seeds in the setting of the slides; the command has ten."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.datasets import make_subspace_sites
from fedspan.engines.local.embedded import federate
from fedspan.linalg import subspace_distance
from fedspan.papers import subspace_median_paper as paper
from fedspan.papers.results_paper import published
from fedspan.pca.power_method import power

SEEDS = range(2)


@pytest.fixture(scope="module", params=[(1, 0.0), (2, 0.015)], ids=["table1", "table2"])
def errors(request):
    """Mean SD_F by method and attack, and of the power method without attack."""
    table, tail = request.param
    wanted = (
        "subspace median, node",
        "subspace median, eigenspace",
        "subspace median, node, QR-completed",
        "resilient power",
    )
    found: dict = {}
    for seed in SEEDS:
        data = make_subspace_sites(1000, 60, 3, 600, tail=tail, seed=7000 + seed)
        fed = federate(data.X, sites=data.sites, seed=seed)
        clean = fed.run(power, rank=60, n_columns=1000)[0]
        found.setdefault("power", []).append(subspace_distance(clean, data.basis))
        for attack_name, attack in paper.ATTACKS.items():
            attacked = fed.corrupt(attack, sites=[fed.sites[seed % 3]])
            for name in wanted:
                if name == "resilient power" and seed > 0:
                    continue  # ten iterations of it are the slowest here, and one seed tells
                basis = attacked.run(paper.methods(60, 1000)[name])
                found.setdefault((name, attack_name), []).append(subspace_distance(basis, data.basis))
    return table, {key: float(np.mean(values)) for key, values in found.items()}


@pytest.mark.slow
def test_tables_of_the_slides(errors):
    table, mean = errors
    for attack in paper.ATTACKS:
        node, completed = mean["subspace median, node", attack], mean["subspace median, node, QR-completed", attack]
        eigenspace = mean["subspace median, eigenspace", attack]
        assert eigenspace <= 0.8 * min(node, completed)
        if table == 1:
            assert max(node, completed) <= 0.105
            assert eigenspace <= 0.075
        else:
            assert 0.325 <= min(node, completed) <= max(node, completed) <= 0.350
            assert eigenspace <= 0.250
    low, high = (0.046, 0.058) if table == 1 else (0.180, 0.195)
    assert low <= mean["power"] <= high
    assert mean["resilient power", "alternating"] >= 0.80
    assert mean["resilient power", "ones"] >= 0.80
    assert mean["resilient power", "orthogonal"] < 0.40
    assert mean["resilient power", "orthogonal"] == pytest.approx(
        published("subspace-median")[f"table {table}"]["orthogonal"][1], abs=0.08
    )


@pytest.mark.slow
def test_batches_of_the_small_setting():
    table = paper._batches(range(1))
    means = {row[0]: [float(cell.split()[0]) for cell in row[1:]] for row in table.rows}
    assert max(means["18 batches, eigenspace"]) <= 0.075
    assert max(means["9 batches, node"]) <= 0.18
    assert max(means["6 batches, node"]) <= 0.15
    for groups in (9, 6):  # by the number of bad sites, one shot beside batches
        node, eigenspace = (
            np.array(means[f"{groups} batches, {output}"]) / means[f"18 batches, {output}"]
            for output in ("node", "eigenspace")
        )
        assert np.all(node < 0.8)
        assert np.all((eigenspace > 0.85) & (eigenspace < 1.15))
