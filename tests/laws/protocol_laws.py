"""Laws that every protocol keeps, whatever it computes. Each ``check_*`` takes an `Example`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import fedspan as fs
from fedspan.errors import FedspanError, JournalError, QuorumError
from fedspan.federation.calls.faults import KINDS
from fedspan.federation.site.row_stream import RowStream
from fedspan.federation.site.steps import dotted_name
from fedspan.wire import canonical, encode
from tests.durable.entries import entry_bounds


@dataclass(frozen=True)
class Example:
    """A protocol with parameters that suit the sites that `sites()` makes."""

    protocol: Callable[..., Any]
    given: Mapping[str, Any]
    sites: Callable[[], list[fs.Site]]

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters, made again for each run: no run sees what another one does to them."""
        return deepcopy(dict(self.given))

    def run(self, transform=lambda fed: fed, reverse=False, **options) -> bytes:
        """Run it on a fresh federation and return its result as bytes."""
        sites = self.sites()
        fed = fs.LocalFederation(sites[::-1] if reverse else sites, **{"seed": 1, **options})
        return as_bytes(transform(fed).run(self.protocol, **self.settings))

    @cached_property
    def expected(self) -> bytes:
        """The result of a plain run, which every law compares with."""
        return self.run()


def as_bytes(result: Any) -> bytes:
    """Return a protocol's result as bytes that are equal only for results that are equal to the last bit."""
    if is_dataclass(result) and not isinstance(result, type):
        return b"|".join(as_bytes(getattr(result, field.name)) for field in fields(result))
    if isinstance(result, tuple | list):
        return b"|".join(map(as_bytes, result))
    if isinstance(result, Mapping):
        return b"|".join(str(key).encode() + b"=" + as_bytes(result[key]) for key in sorted(result))
    if isinstance(result, np.ndarray) and result.dtype.names:
        return as_bytes({name: result[name] for name in result.dtype.names})
    if isinstance(result, fs.Federation):
        return repr(result.sites).encode()
    if callable(result):
        return dotted_name(result).encode()
    return encode(canonical({"value": result}))


def check_repeatable_by_seed(example: Example) -> None:
    assert example.expected == example.run(), "a second run has another result"


def check_site_order_is_irrelevant(example: Example) -> None:
    assert example.run(reverse=True) == example.expected, "with the sites in reverse the result is another one"


def check_wire_and_threads_change_nothing(example: Example) -> None:
    assert example.run(n_jobs=3, wire=True) == example.expected, "by wire and with threads the result is another one"


def check_data_and_arguments_are_not_modified(example: Example) -> None:
    sites, settings = example.sites(), example.settings
    fs.LocalFederation(sites, seed=1).run(example.protocol, **settings)
    for site, before in zip(sites, example.sites(), strict=True):
        for what in ("X", "y", "task"):
            now, then = getattr(site, what), getattr(before, what)
            np.testing.assert_array_equal(now, then, f"{what} of {site.name} is another one afterwards")
    for name, value in example.settings.items():
        assert as_bytes(settings[name]) == as_bytes(value), f"the argument {name} is another one afterwards"


#: Places of a long journal at which it is cut; fewer with the profile of "make quick".
PLACES = 5 if settings().max_examples > 15 else 2


def check_resumes_after_any_call(example: Example, folder) -> None:
    """Cut the journal after a call or within the next one, as a kill would, and compare the bytes at the end.

    Every call of a short run is cut; of a long one the first, the last, and some between. Half of the runs go on by
    wire. Where a journal may be cut within a record is tested with the journal.
    With another seed the run does not resume.
    """
    expected = example.run(run_dir=folder)
    assert expected == example.expected, "with a journal the result is another one"
    journal = folder / "run-000" / "journal"
    whole = journal.read_bytes()
    bounds = entry_bounds(journal)[1:]
    calls = bounds[:-1]
    some = {round(i) for i in np.linspace(0, len(calls) - 1, min(PLACES, len(calls)))}
    for number, place in enumerate(sorted(some)):
        cut = calls[place] + 10 * (number % 2)
        journal.write_bytes(whole[:cut])
        assert example.run(run_dir=folder, wire=cut in bounds) == expected, f"not after a kill at byte {cut}"
    with pytest.raises(JournalError, match="seed was 1 and is now 2"):
        example.run(run_dir=folder, seed=2)


#: Faults that fail a site. What each of them does to a call is tested in ``tests/federation``.
LOSSY = tuple(kind for kind in KINDS if kind != "duplicate")


def check_survives_faults(example: Example) -> None:
    """With a fifth of the replies lost a run ends with a result, or stops and says who failed and why."""
    faulty = fs.LocalFederation(example.sites(), seed=1).with_faults(
        fs.FaultPlan(seed=3, **dict.fromkeys(LOSSY, 0.2 / len(LOSSY)))
    )
    result = b""
    with suppress(QuorumError), faulty.begin("faulty") as run:
        result = as_bytes(example.protocol(run, **example.settings))
    if not result:
        assert run.record.calls[-1].failed, "it stopped after a call that did not fail"
        assert run.record.stopped.startswith("failed: QuorumError"), f"it stopped by {run.record.stopped!r}"
    assert all(why for _, _, why in run.record.failures), "a failure has no reason"


def check_duplicates_change_nothing(example: Example) -> None:
    faulty = fs.LocalFederation(example.sites(), seed=1).with_faults(fs.FaultPlan(seed=3, duplicate=0.2))
    with faulty.begin("faulty") as run:
        result = as_bytes(example.protocol(run, **example.settings))
    assert run.record.failures == [], "a reply that came twice is a failure"
    assert result == example.expected, "replies that came twice change the result"


def check_survives_attack(example: Example, attack: Any) -> None:
    """With two malicious sites of nine a run ends with a result, or stops with an error of ours, a sentence."""
    fed = fs.LocalFederation(example.sites(), seed=1)
    with suppress(FedspanError), fed.corrupt(attack, sites=fed.sites[1:8:5]).begin("attacked") as run:
        as_bytes(example.protocol(run, **example.settings))
    assert run.record.stopped, "the record does not say why it stopped"


def check_faults_are_repeatable(example: Example) -> None:
    plan = fs.FaultPlan(seed=5, **dict.fromkeys(KINDS, 0.02))
    policy = fs.Policy(quorum=1)
    runs = [example.run(lambda fed: fed.with_faults(plan), wire=wire, policy=policy) for wire in (False, True)]
    assert runs[0] == runs[1], "by wire the same faults have another result"


class InBlocks(RowStream):
    """A table that is read in blocks of few rows."""

    def __init__(self, X: Any) -> None:
        self._X, self.label, self.shape, self.feature_names = np.array(X), "blocks", X.shape, None

    def batches(self, rows):
        for start in range(0, len(self._X), min(rows, 7)):
            yield self._X[start : start + min(rows, 7)].astype(float)

    def in_order(self, names):
        return self

    def stamp(self):
        return blake2b(self._X.tobytes()).hexdigest()


def check_rows_in_blocks_change_little(example: Example) -> None:
    """Compare with a run whose sites stream their rows; a protocol that needs all of them at once refuses."""
    sites = [fs.Site(one.name, InBlocks(one.X), one._data.y, one._data.task) for one in example.sites()]
    found = fs.LocalFederation(sites, seed=1).run(example.protocol, **example.settings)
    whole = fs.LocalFederation(example.sites(), seed=1).run(example.protocol, **example.settings)
    numbers, expected = dict(_numbers(found)), dict(_numbers(whole))
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        largest = np.abs(value[np.isfinite(value)]).max(initial=0.0)
        np.testing.assert_allclose(numbers[name], value, rtol=0, atol=1e-12 * largest + 1e-15, err_msg=name)


def _numbers(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers of a result, each array with its place."""
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if isinstance(result, np.ndarray) and result.dtype.names:
        result = {name: result[name] for name in result.dtype.names}
    if isinstance(result, tuple | list):
        result = dict(enumerate(result))
    if isinstance(result, Mapping):
        for key, value in result.items():
            yield from _numbers(value, f"{path}/{key}")
    elif isinstance(result, np.ndarray | float | int) and np.asarray(result).dtype.kind in "biuf":
        yield path, np.asarray(result, dtype=float)
