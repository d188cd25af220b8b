"""What somebody adds is found and tested without being listed, and what cannot be made says what it needs."""

from __future__ import annotations

import importlib
import random
import sys

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
from . import test_attacks as attacks
from . import test_engines as engines
from .discovery import NeedsAnExampleError, check_exported

HEAD = "from __future__ import annotations\nfrom dataclasses import dataclass\nimport numpy as np\n"
FIRST_VALUE = f"""{HEAD}
from fedspan.aggregation.base import Aggregate, Given

@dataclass(frozen=True)
class FirstValue:
    f: int
    believes_reported_weights = False

    def __call__(self, values, weights=None):
        given = Given.of(values, weights)
        return given.aggregate(given.points[0], given.weights)

@dataclass(frozen=True)
class Middle(FirstValue):
    def __call__(self, values, weights=None):
        given = Given.of(values, weights)
        return given.aggregate(np.median(given.points, axis=0), given.weights)
"""
EVERYBODY_LIES = f"""{HEAD}
from fedspan.attacks.base import KeyAttack

@dataclass(frozen=True)
class EverybodyLies(KeyAttack):
    def __call__(self, replies, bad, rng, call):
        return {{site: {{**reply, "loss": rng.normal()}} for site, reply in replies.items()}}

    def lie(self, seen, rng):
        return seen.own
"""
COUNTING = f"""{HEAD}
from fedspan import step

CALLS = []

@step
def local_sum(site, rank):
    CALLS.append(site.name)
    return {{"total": site.X.sum(axis=0)[:rank] + len(CALLS)}}

def counting(fed, *, rank):
    return fed.ask(local_sum, rank=rank).stack("total")
"""

ENGINES = f"""{HEAD}
from dataclasses import replace
from fedspan.engines.local import LocalEngine

class LastFirst(LocalEngine):
    def __init__(self, sites, greeting="hello"):
        super().__init__(sites, wire=True)

    def call(self, call, to, accepted, policy):
        return super().call(call, to[::-1], accepted, policy)

class Rounding(LastFirst):
    def call(self, call, to, accepted, policy):
        found = super().call(call, to, accepted, policy)
        return {{site: replace(sent, reply=rounded(sent.reply)) for site, sent in found.items()}}

def rounded(reply):
    doubles = {{key: value for key, value in reply.items() if getattr(value, "dtype", None) == np.float64}}
    return reply | {{key: value.astype(np.float32).astype(float) for key, value in doubles.items()}}
"""
PIGEONS = f"""{HEAD}
class Pigeons:
    def __init__(self, workers):
        self.workers = workers
        self.sites = tuple(sorted(workers))

    def send(self, requests, deadline):
        return {{site: self.workers[site].answer(request) for site, request in requests.items()}}

    def online(self):
        return frozenset(self.sites)

    def close(self): ...

class Shuffling(Pigeons):
    def send(self, requests, deadline):
        found = super().send(requests, deadline)
        return dict(zip(found, [*found.values()][::-1], strict=True))
"""
SHY_SCALER = f"""{HEAD}
from fedspan import FedStandardScaler

class ShyScaler(FedStandardScaler):
    def __init__(self, odd):
        self.odd = odd
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that makes a package of one module, and takes its name and source."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(name, source):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text("__all__ = []\n")
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
    moved = rules.test_bad_values_move_a_resilient_rule_no_further_than_its_bound.hypothesis.inner_test
    moved(middle, 1, 5, 3, "same")
    with pytest.raises(AssertionError):
        [moved(first, seed, 5, 3, "same") for seed in range(9)]  # until the first one lies
    with pytest.raises(AssertionError, match=r"more_rules.added.FirstValue is not in __all__ of more_rules"):
        check_exported(aggregator_examples.rules_of(added), added)


def test_an_attack_is_found_and_its_faults_are(package):
    (law,) = attack_examples.examples_of(package("more_attacks", EVERYBODY_LIES))
    with pytest.raises(AssertionError):
        attacks.test_only_floating_values_of_bad_sites_change.hypothesis.inner_test(law, 0)


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
    examples = [
        protocol_examples.EXAMPLES[name] for name in ("covariance_pca.covariance_pca", "noisy_centres.noisy_centres")
    ]
    for number, example in enumerate(examples):
        engines.check_same_bytes(ways[right], example, tmp_path / f"right-{number}")
        with pytest.raises((AssertionError, FedspanError)):
            engines.check_same_bytes(ways[wrong], example, tmp_path / f"wrong-{number}")


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
