"""Every protocol of the package, found by itself, against every law."""

from __future__ import annotations

import pytest

from fedspan.attacks import RandomNoise, SignFlip, WrongShape

from . import protocol_laws as laws
from .protocol_examples import EXAMPLES, SETTINGS

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
