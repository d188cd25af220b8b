"""Every engine of the package, found by itself: it gives the bytes of the embedded one, with every protocol.

Threads and the wire are settings of the embedded engine, and a law of protocols. The engines' own tests, of what goes
wrong between machines, are in ``tests/engines``.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

import pytest

from fedspan import engines

from .engine_examples import ROOT, WAYS, embedded, found_in, ways_of
from .protocol_examples import EXAMPLES
from .protocol_laws import as_bytes

HERE = {name: way for name, way in ways_of(engines).items() if callable(way) and way is not embedded}


def test_every_listed_way_is_to_an_engine():
    assert set(WAYS) <= set(found_in(engines))
    assert HERE


@pytest.mark.parametrize("path", [way for way in WAYS.values() if isinstance(way, str)])
def test_a_file_of_tests_elsewhere_exists(path):
    assert (ROOT / path).is_file()


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Makes federations; the processes of sites start once for all examples that have them."""
    with ExitStack() as stack:

        @cache
        def sites_on(engine, sites):
            return stack.enter_context(HERE[engine](sites(), tmp_path_factory.mktemp("sites")))

        yield lambda engine, sites: sites_on(engine, sites)()


def check_same_bytes(fed, example):
    found = as_bytes(fed.run(example.protocol, **example.settings))
    assert found == example.expected, "the result is not that of the embedded engine"


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_every_protocol_gives_the_bytes_of_the_embedded_engine(engine, example, opened):
    check_same_bytes(opened(engine, example.sites), example)
