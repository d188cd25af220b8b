"""Measures of mixing and agreement by sums, beside the pooled ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import fedspan as fs
from fedspan.atlases.measures import agreement, cluster_agreement, site_mixing
from fedspan.errors import InputError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import find_step
from tests.atlases.blood_cells import blood, same_among_neighbours, types_and_batches

install_steps()


def test_mixing_of_donors_is_near_the_pooled_measure():
    """Uncorrected 1.73 and corrected .99 among 30 neighbours: by sums within .08 of both."""
    before, after, donor = blood()
    for X in (before, after):
        found = fs.federate(X, sites=donor).run(site_mixing)
        assert abs(found.ratio - same_among_neighbours(X, donor)) < 0.08
        assert found.lisi <= found.expected_lisi
        assert found.ratio == pytest.approx(found.expected_lisi / found.lisi)


def test_mixing_counts_pairs_by_hand():
    X = np.array([[0.0], [0.0], [0.0], [9.0], [9.0], [9.0]])
    centres = np.array([[0.0], [9.0]])
    found = fs.federate(X, sites=["a", "a", "b", "b", "b", "b"]).run(site_mixing, centres=centres)
    # One of three pairs at 0 and all of three at 9 are of one site; of all fifteen pairs, seven are.
    assert found.ratio == pytest.approx(((1 / 3 + 1) / 2) / (7 / 15))


def test_mixing_under_secure_sums_has_totals_alone():
    X, _, batch = types_and_batches(batches=4)
    plain = fs.federate(X, sites=batch).run(site_mixing)
    secure = fs.federate(X, sites=batch, policy=fs.Policy(secure_sum=True)).run(site_mixing)
    assert secure.ratio == pytest.approx(plain.ratio)


def test_agreement_of_clusters_with_labels_is_the_pooled_one():
    X, kind, batch = types_and_batches()
    names = np.array(["T", "B", "NK", "monocyte"])[kind]
    centres = fs.FedKMeans(5, random_state=0).fit(X).cluster_centers_
    fed = fs.federate(X, names, sites=batch)
    found = fed.run(cluster_agreement, centres=centres)
    labels = np.linalg.norm(X[:, None] - centres, axis=2).argmin(axis=1)
    assert found.ari == pytest.approx(adjusted_rand_score(names, labels))
    assert found.nmi == pytest.approx(normalized_mutual_info_score(names, labels))
    assert found.names == ("B", "NK", "T", "monocyte")
    assert found.table.sum() == 300
    given = fed.run(cluster_agreement, centres=centres, names=np.array(["T", "B"]))
    assert given.table.sum() == np.isin(names, ["T", "B"]).sum()


def test_agreement_of_tables_by_hand():
    rng = np.random.default_rng(0)
    a, b = rng.integers(3, size=200), rng.integers(4, size=200)
    table = np.zeros((3, 4), int)
    np.add.at(table, (a, b), 1)
    ari, nmi, purity = agreement(table)
    assert (ari, nmi) == pytest.approx((adjusted_rand_score(a, b), normalized_mutual_info_score(a, b)))
    assert purity == table.max(axis=1).sum() / 200
    assert agreement(np.array([[3]])) == (1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="1 rows have a label"):
        agreement(np.array([[1, 0]]))


def test_rows_without_labels_and_single_rows_are_refused():
    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1])
    with pytest.raises(InputError, match="no site have labels: give them as y"):
        fed.run(cluster_agreement, centres=np.eye(4))
    with pytest.raises(InputError, match="no neighbourhood has two rows"):
        fed.run(site_mixing, centres=np.eye(4))


@pytest.mark.parametrize("step", ["cluster_gene_counts", "cluster_gene_sums"])
def test_owners_learn_of_clusters_of_few_cells(step):
    """The sums of a cluster of one cell are that cell, whatever the analyst's own guard requests."""
    labels = np.array(["b"] * 57 + ["rare"] * 3)
    site = fs.Site("a", np.ones((60, 4)), labels)
    fewest = find_step(f"atlases.{step}").fewest
    assert fewest(site, clusters=2, names=np.array(["b", "rare"])) == 3
    with pytest.raises(InputError, match="only inside a step"):  # clusters that it keeps: not known beforehand
        fewest(site, clusters=2)


@pytest.mark.parametrize("step", ["centres", "batch_sums", "new_batch_sums"])
def test_owners_learn_that_centres_may_leave_one_row_alone(step):
    found = find_step(f"atlases.{step}")
    assert found.fewest(fs.Site("a", np.ones((60, 4)))) == 1
    assert not found.fewest_in_sums
