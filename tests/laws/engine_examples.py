"""Every engine and every transport of the package, found by itself, and how the laws run a protocol on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import fedspan as fs
from fedspan.engines.remote.transport import Transport
from fedspan.federation.call import Engine
from fedspan.privacy.simulated import SimulatedLedger
from tests.engines.remote.network import Network

from .discovery import NeedsAnExampleError, public_classes

SEED = 1


def methods(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def found_in(package) -> dict[str, type]:
    """Return the classes that do all that an engine does, or all that a transport of the remote engine does."""

    def wanted(kind: type) -> bool:
        has = set(dir(kind)) | set(inspect.get_annotations(kind))
        # What a constructor sets, such as `sites`, a class does not show.
        return any(methods(what) - {"sites"} <= has for what in (Engine, Transport))

    return public_classes(package, wanted)


@contextmanager
def embedded(sites, folder, **options):
    yield fs.LocalFederation(sites, seed=SEED, **options)


@contextmanager
def remote(sites, folder, **options):
    def with_ledger(site):
        """Return the site with the ledger that an embedded one pretends to have."""
        data = site._data
        table = data.frame if data.frame is not None else site.X
        return fs.Site(site.name, table, site.y, site.task, ledger=SimulatedLedger(site.name, SEED))

    with Network([with_ledger(site) for site in sites], folder).federation(seed=SEED, **options) as fed:
        yield fed


#: By engine or transport, how to open a federation on it; or the file of tests where it has a battery of its own, since
#: it needs processes that are too slow to start for every protocol.
WAYS: dict[str, Callable | str] = {
    "LocalEngine": embedded,
    "RemoteEngine": remote,
    "NVFlareTransport": "tests/engines/nvflare/test_same_bits.py",
}


def ways_of(package) -> dict[str, Callable | str]:
    for name, kind in found_in(package).items():
        if name not in WAYS:
            raise NeedsAnExampleError(
                f"{kind.__module__}.{name} carries calls, and nothing compares its bytes with the embedded engine's: "
                "say in WAYS of tests/laws/engine_examples.py how a federation is opened on it"
            )
    return {name: WAYS[name] for name in found_in(package)}


def battery(path: str) -> str:
    return (Path(__file__).parents[2] / path).read_text()
