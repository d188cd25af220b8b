"""An addition is found and tested without being listed; one that cannot be made states what it needs."""

from __future__ import annotations

import importlib
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fedspan.errors import FedspanError

from . import (
    aggregator_examples,
    attack_examples,
    engine_examples,
    estimator_examples,
    protocol_examples,
)
from . import protocol_laws as laws
from . import test_aggregators as rules
from . import test_aggregators_at_the_limit as limits
from . import test_attacks as attacks
from . import test_engines as engines
from . import test_estimators as estimators
from .conftest import LawBrokenError, pytest_runtest_call
from .discovery import NeedsAnExampleError, check_exported
from .strangers import (
    COUNTING,
    DUCKS,
    ENGINES,
    EVERYBODY_LIES,
    FIRST_VALUE,
    FUNCTIONS_AS_ATTACKS,
    FUNCTIONS_AS_RULES,
    IN_PLACE,
    PIGEONS,
    SHY_SCALER,
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that makes a package of one module: it takes its name, its source and what is exported."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(name, source, *exported):
        folder = tmp_path / name
        folder.mkdir()
        imports = f"from {name}.added import {', '.join(exported)}\n" if exported else ""
        (folder / "__init__.py").write_text(f"{imports}__all__ = {list(exported)}\n")
        (folder / "added.py").write_text(source)
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in list(sys.modules):
        if name.split(".")[0] in made:
            del sys.modules[name]


def test_an_aggregator_is_found_and_its_faults_are(package):
    added = package("more_rules", FIRST_VALUE)
    first, middle = aggregator_examples.examples_of(added)
    assert repr(first.rule) == "FirstValue(f=1)"
    with pytest.raises(AssertionError):
        rules.test_order_makes_no_difference.hypothesis.inner_test(first, np.arange(9.0), 9, None, random.Random(0))
    moved = limits.test_bad_values_move_a_resilient_rule_no_further_than_its_bound.hypothesis.inner_test
    moved(middle, 1, 5, 3, "same")
    with pytest.raises(AssertionError):
        [moved(first, seed, 5, 3, "same") for seed in range(9)]  # until the first one lies
    with pytest.raises(AssertionError, match=r"more_rules.added.FirstValue is not in __all__ of more_rules"):
        check_exported(aggregator_examples.rules_of(added), added)


def test_a_rule_is_found_whatever_it_looks_like(package):
    names = ("middle", "Patient", "Renamed", "in_place", "unwilling")
    found = dict(
        zip(names, aggregator_examples.examples_of(package("odd_rules", FUNCTIONS_AS_RULES, *names)), strict=True)
    )
    assert [repr(rule) for rule in found.values()] == list(names)
    called = rules.test_it_is_called_with_values_and_weights
    untouched = rules.test_the_input_is_not_modified_and_the_result_is_repeatable.hypothesis.inner_test
    for name in ("middle", "Patient"):
        called(found[name])
        untouched(found[name], -np.arange(9.0), 9, None)
        rules.test_only_the_mean_believes_reported_weights(found[name])
    for name in ("Renamed", "unwilling"):
        with pytest.raises(TypeError):
            called(found[name])
    with pytest.raises(AssertionError, match="the values are others afterwards"):
        untouched(found["in_place"], -np.arange(9.0), 9, None)


def test_what_is_exported_and_no_rule_must_be_named(package):
    with pytest.raises(
        NeedsAnExampleError, match=r"odd_rules.LIMIT is exported, .* add its name to OTHERS in tests/laws"
    ):
        aggregator_examples.examples_of(package("odd_rules", FUNCTIONS_AS_RULES, "LIMIT"))


def test_an_attack_is_found_and_its_faults_are(package):
    (law,) = attack_examples.examples_of(package("more_attacks", EVERYBODY_LIES))
    with pytest.raises(AssertionError):
        attacks.test_only_floating_values_of_bad_sites_change.hypothesis.inner_test(law, 0)


def test_an_attack_that_is_a_function_is_found_and_its_faults_are(package):
    names = ("backwards", "too_far")
    good, bad = attack_examples.examples_of(package("odd_attacks", FUNCTIONS_AS_ATTACKS, *names))
    assert [repr(good), repr(bad)] == list(names)
    law = attacks.test_only_floating_values_of_bad_sites_change.hypothesis.inner_test
    law(good, 0)
    attacks.test_honest_replies_are_never_modified(good)
    with pytest.raises(AssertionError, match="honest sites lie"):
        law(bad, 0)


def test_a_protocol_that_changes_its_arguments_is_noticed(package):
    found = protocol_examples.examples_of(package("careless_protocols", IN_PLACE))
    laws.check_data_and_arguments_are_not_modified(found["careful"])
    laws.check_repeatable_by_seed(found["careless"])  # which does not spoil the next one
    with pytest.raises(AssertionError, match="the argument U is another one afterwards"):
        laws.check_data_and_arguments_are_not_modified(found["careless"])


def test_a_protocol_is_found_and_its_faults_are(package):
    (example,) = protocol_examples.examples_of(package("more_protocols", COUNTING)).values()
    assert example.settings == {"rank": 3}
    with pytest.raises(AssertionError):
        laws.check_repeatable_by_seed(example)


@pytest.mark.parametrize(
    ("source", "right", "wrong"), [(ENGINES, "LastFirst", "Rounding"), (PIGEONS, "Pigeons", "Shuffling")]
)
def test_an_engine_or_transport_is_found_and_its_faults_are(package, tmp_path, source, right, wrong):
    ways = engine_examples.ways_of(package("more_ways", source))
    assert set(ways) == {right, wrong}
    examples = [protocol_examples.EXAMPLES[name] for name in ("covariance_pca", "noisy_centres")]
    for number, example in enumerate(examples):
        with ways[right](example.sites(), tmp_path / f"right-{number}") as federation:
            engines.check_same_bytes(federation(), example)
        with (
            ways[wrong](example.sites(), tmp_path / f"wrong-{number}") as federation,
            pytest.raises((AssertionError, FedspanError)),
        ):
            engines.check_same_bytes(federation(), example)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            PIGEONS.replace("(self, workers)", "(self, kit)"),
            r"Pigeons carries calls, .* take 'workers', or say in WAYS",
        ),
        (
            ENGINES.replace("(self, sites,", "(self, server,"),
            r"LastFirst carries calls, .* take 'sites', or say in WAYS",
        ),
        (
            ENGINES.replace("(self, sites,", "(self, sites, odd,"),
            r"LastFirst .* nothing is known of its odd. .*WAYS of",
        ),
    ],
)
def test_an_engine_or_transport_without_a_known_other_end_must_say_how_it_is_opened(package, source, words):
    with pytest.raises(NeedsAnExampleError, match=words):
        engine_examples.ways_of(package("odd_ways", source))


def test_an_estimator_is_found_and_must_be_exported_and_made(package):
    added = package("more_estimators", SHY_SCALER)
    found = estimator_examples.estimators_of(added)
    assert list(found) == ["ShyScaler"]
    with pytest.raises(AssertionError, match="not in __all__"):
        check_exported(found, added)
    with pytest.raises(NeedsAnExampleError, match=r"nothing is known of its odd. .*tests/laws/estimator_examples.py"):
        estimator_examples.make(found["ShyScaler"])


def test_an_estimator_of_no_known_kind_is_found_and_its_faults_are(package):
    found = estimator_examples.estimators_of(package("ducks", DUCKS, "Duck", "Goose", "feed"))
    assert set(found) == {"Duck", "Goose"}
    estimators.test_threads_wire_and_site_order_change_nothing(found["Duck"])
    with pytest.raises(AssertionError):
        estimators.test_threads_wire_and_site_order_change_nothing(found["Goose"])
    with pytest.raises(AttributeError):
        estimators.test_the_record_says_who_took_part_and_why_it_stopped(found["Duck"])


@pytest.mark.parametrize(
    "error", [AssertionError("\nassert False\nmore"), ValueError("assert False"), pytest.fail.Exception("assert False")]
)
def test_a_broken_law_is_told_in_a_sentence(error):
    def notified(**params):
        case = SimpleNamespace(params=params, id="middle")
        hook = pytest_runtest_call(SimpleNamespace(originalname="test_order_is_kept", callspec=case))
        next(hook)
        hook.throw(error)

    with pytest.raises(
        LawBrokenError, match=rf"^middle breaks the law 'order is kept' \({type(error).__name__}: assert False\)$"
    ):
        notified(law=None)
    with pytest.raises(type(error)) as raised:  # of whatever is no law
        notified(source="")
    assert raised.value is error


@pytest.mark.parametrize(
    ("examples_of", "source", "what", "table"),
    [
        (aggregator_examples.examples_of, FIRST_VALUE.replace("f: int", "odd: int"), "FirstValue", "aggregator"),
        (
            attack_examples.examples_of,
            EVERYBODY_LIES.replace("(KeyAttack):", "(KeyAttack):\n    odd: int"),
            "E",
            "attack",
        ),
        (protocol_examples.examples_of, COUNTING.replace("*, rank", "*, odd, rank"), "counting", "protocol"),
    ],
)
def test_what_cannot_be_made_says_what_it_needs(package, examples_of, source, what, table):
    words = rf"odd_ones.added.{what}.* nothing is known of its odd. .*tests/laws/{table}_examples.py"
    with pytest.raises(NeedsAnExampleError, match=words):
        examples_of(package("odd_ones", source))
