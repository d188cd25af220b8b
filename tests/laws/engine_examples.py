"""Every engine and every transport of the package, found by itself, and how the laws run a protocol on it.

An engine that is made of sites, as the embedded one is, and a transport that is made of the workers at its other end
(``workers``, by site: what has ``answer(request)``) are opened as they are found, without being listed. What needs more
to be made, such as a server, says so, and is listed in `WAYS`. Each way yields a function that makes a federation on
the same sites again, so that one start of their processes is enough for many protocols.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.coordinator.signed_requests import Transport
from fedspan.federation import Federation, Policy
from fedspan.federation.calling import Root, View
from fedspan.federation.calls.call import Engine
from fedspan.privacy.ledger import SimulatedLedger
from tests.engines.remote.network import Network
from tests.engines.remote.people import authority, user

from .discovery import NeedsAnExampleError, arguments, public_classes

SEED = 1
ROOT = Path(__file__).parents[2]
TABLE = "WAYS of tests/laws/engine_examples.py"


def methods(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def does_all_of(what: type, kind: type) -> bool:
    """Tell whether a class does all that a protocol class asks for."""
    has = set(dir(kind)) | set(inspect.get_annotations(kind))
    return methods(what) - {"sites"} <= has  # what a constructor sets, such as `sites`, a class does not show


def found_in(package) -> dict[str, type]:
    """Return the classes that do all that an engine does, or all that a transport of the remote engine does."""
    return public_classes(package, lambda kind: does_all_of(Engine, kind) or does_all_of(Transport, kind))


@contextmanager
def embedded(sites, folder, **options):
    yield lambda: fs.LocalFederation(sites, seed=SEED, **options)


def with_ledger(site):
    """Return the site with the ledger that an embedded one pretends to have."""
    data = site._data
    table = data.frame if data.frame is not None else site.X
    return fs.Site(site.name, table, site.y, site.task, ledger=SimulatedLedger(site.name, SEED))


@contextmanager
def remote(sites, folder, **options):
    network = Network([with_ledger(site) for site in sites], folder, processes=True)
    try:
        yield lambda: network.federation(seed=SEED, **options)
    finally:
        network.close()


@contextmanager
def on_engine(kind, sites, folder):
    """Open an engine that was found, made of the sites."""
    engine = kind(**arguments(kind, {"sites": sites}, TABLE))
    yield lambda: Federation(Root(engine, SEED, Policy(), None), View(engine.sites))


@contextmanager
def over_transport(kind, sites, folder):
    """Open a transport that was found, made of the workers at its other end."""
    network = Network([with_ledger(site) for site in sites], folder, processes=True)
    transport = kind(**arguments(kind, {"workers": network.workers}, TABLE))
    try:
        yield lambda: RemoteFederation(transport, user(), authority(network.sites), SEED)
    finally:
        transport.close()
        network.close()


#: What is not opened as it is found: by engine or transport, how to open it; or the file of tests where
#: it has a battery of its own, since it needs processes that are too slow to start for every protocol.
WAYS: dict[str, Callable | str] = {
    "LocalEngine": embedded,
    "RemoteEngine": remote,
    "NVFlareTransport": "tests/engines/nvflare/test_nvflare_transport.py",
}


def way_to(kind: type) -> Callable:
    """Return how a federation is opened on a class that is not listed; refuse one that nothing is known of.

    A transport cannot be made without its other end: one that does not name its ``workers`` is always refused.
    """
    way, end = (on_engine, "sites") if does_all_of(Engine, kind) else (over_transport, "workers")
    if end not in inspect.signature(kind).parameters:
        raise NeedsAnExampleError(
            f"{kind.__module__}.{kind.__name__} carries calls, and nothing compares its bytes with the embedded "
            f"engine's: let its constructor take {end!r}, or say in {TABLE} how a federation is opened on it"
        )
    arguments(kind, {end: None}, TABLE)  # says what else it needs
    return partial(way, kind)


def ways_of(package) -> dict[str, Callable | str]:
    """Return, by the engines and transports of a package, how to open a federation on each, or its own battery."""
    return {name: WAYS.get(name) or way_to(kind) for name, kind in found_in(package).items()}
