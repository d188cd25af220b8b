"""Every protocol of the package, found by itself, against every law."""

from __future__ import annotations

import pytest

from fedspan.attacks import RandomNoise, SignFlip, WrongShape

from . import protocol_laws as laws
from .protocol_examples import EXAMPLES, SETTINGS

#: Protocols that post or compare single rows, and those with tasks, labels or models at a site: they need all rows.
NEED_ALL_ROWS = {
    *("cell_clusters", "harmony", "cluster_agreement", "site_mixing", "new_effects", "neighbor_hits"),
    *("altgdmin", "byz_altgdmin", "voted", "common_centre", "median_coefs", "pooled_coefs", "agree_on_tasks"),
    *("logistic_fedx", "moment_descent_paper", "subspace_median", "autoencoder", "bigan", "fedavg"),
    *("error_totals", "hit_rate", "roc_area", "value_totals", "verdict_counts"),
}
#: A stream's noise is another: its rows are identified by the file that has them.
NOISY = {name for name in EXAMPLES if name.startswith(("noisy_", "private_feddl"))}
#: Their sites have data frames or sparse counts (`test_streams`).
FRAMES = {name for name, one in EXAMPLES.items() if one.sites()[0].frame is not None}

every_protocol = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


def test_every_example_is_of_a_protocol():
    assert set(SETTINGS) <= set(EXAMPLES)
    assert len(EXAMPLES) > 60


@every_protocol
def test_repeatable_by_seed(example):
    laws.check_repeatable_by_seed(example)


@every_protocol
def test_site_order_is_irrelevant(example):
    laws.check_site_order_is_irrelevant(example)


@every_protocol
def test_wire_and_threads_change_nothing(example):
    laws.check_wire_and_threads_change_nothing(example)


@every_protocol
def test_data_and_arguments_are_not_modified(example):
    laws.check_data_and_arguments_are_not_modified(example)


@every_protocol
def test_resumes_after_any_call(example, tmp_path):
    laws.check_resumes_after_any_call(example, tmp_path)


@every_protocol
def test_survives_faults(example):
    laws.check_survives_faults(example)


@every_protocol
def test_duplicates_change_nothing(example):
    laws.check_duplicates_change_nothing(example)


@every_protocol
def test_faults_are_repeatable(example):
    laws.check_faults_are_repeatable(example)


@every_protocol
@pytest.mark.parametrize("attack", [SignFlip(), RandomNoise(1e150), RandomNoise(1e300), WrongShape()], ids=repr)
def test_survives_attack(example, attack):
    laws.check_survives_attack(example, attack)


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - FRAMES - NEED_ALL_ROWS - NOISY))
def test_rows_in_blocks_change_little(name):
    laws.check_rows_in_blocks_change_little(EXAMPLES[name])
