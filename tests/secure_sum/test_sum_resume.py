"""A killed run goes on, and its journal holds no secret."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import JournalError, QuorumError
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.secure_sum import sum_masks as masks
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.sums.row_blocks import n_columns

from ..laws.protocol_laws import as_bytes
from .players import sites_of

SECURE = fs.Policy(secure_sum=True)


@fs.step
def walk(site, pull):
    site.state["steps"] = site.state.get("steps", 0) + 1
    position = site.state.setdefault("position", np.zeros(3))
    position += 0.1 * site.rng.normal(size=3) + pull * (site.X.mean(axis=0) - position)
    return {"position": position, "steps": site.state["steps"]}


@fs.step(reveals="nothing")
def columns(site):
    site.state["asked"] = site.state.get("asked", 0) + 1
    return {"columns": n_columns(site), "asked": site.state["asked"]}


def wander(fed, apart=0.0):
    """State, draws, samples, single public replies and sums, in turns; `apart` makes each sum another query."""
    results = []
    for t in fed.rounds(3):
        total = fed.sample(0.7).mean(walk, pull=0.5 / (t + 1))
        results += [total["position"], total["steps"], fed.sum(walk, pull=0.1 + apart * t)["position"]]
        results.append(fed.ask(columns).stack("asked"))
    return results


def run(folder=None, transform=lambda fed: fed, policy=SECURE, apart=0.0, **options):
    fed = fs.LocalFederation(sites_of(5), seed=3, policy=policy, run_dir=folder, **options)
    return as_bytes(transform(fed).run(wander, apart=apart))


class KilledError(BaseException):
    pass


def kill_at(monkeypatch, message):
    """Simulate the end of the process when message number `message` has been answered."""
    whole, count = LocalEngine.call, [0]

    def call(self, *args):
        outcomes = whole(self, *args)
        count[0] += 1
        if count[0] == message:
            raise KilledError
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)


@pytest.mark.slow
def test_resumes_after_a_kill_at_any_message(tmp_path):
    """Also between the parts of a sum: it begins again, with other keys, from the states before it."""
    expected = run()
    message = 0
    while True:
        message += 1
        folder = tmp_path / str(message)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, message)
            try:
                run(folder)
                break
            except KilledError:
                pass
        assert run(folder, wire=message % 2 == 0) == expected
    assert message == 3 * (5 + 5 + 1) + 1


def test_a_finished_run_is_read_from_its_journal(tmp_path, monkeypatch):
    expected = run(tmp_path)
    monkeypatch.setattr(LocalEngine, "call", lambda *args: pytest.fail("a site was contacted"))
    assert run(tmp_path) == expected


def test_the_record_of_a_resumed_run_has_the_same_bytes(tmp_path):
    def traffic():
        fed = fs.LocalFederation(sites_of(5), seed=3, policy=SECURE, run_dir=tmp_path)
        with fed.begin("walk") as begun:
            wander(begun)
        return [(call.step, call.answered, call.bytes_up, call.bytes_down) for call in begun.record.calls]

    assert traffic() == traffic()


def test_resumes_under_faults(tmp_path):
    plan = fs.FaultPlan(seed=5, drop=0.05, error=0.05)
    policy = fs.Policy(secure_sum=True, quorum=2)

    def faulty(fed):
        return fed.with_faults(plan)

    expected = run(transform=faulty, policy=policy, apart=0.01)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 14)
        with pytest.raises(KilledError):
            run(tmp_path, faulty, policy, apart=0.01)
    assert run(tmp_path, faulty, policy, apart=0.01) == expected


def test_a_sum_that_failed_is_asked_for_again(tmp_path):
    whole = LocalEngine.call

    def call(self, call, to, *args):
        outcomes = whole(self, call, to, *args)
        lost = call.number == 3 and call.step.function.__name__ == "masked"
        return {
            name: Failure(FailureKind.NO_REPLY, "lost") if lost and name < "s03" else outcome
            for name, outcome in outcomes.items()
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "call", call)
        with pytest.raises(QuorumError, match="the secure sum needs"):
            run(tmp_path)
    assert run(tmp_path) == run()


def test_a_journal_in_the_open_does_not_fit_a_secure_run(tmp_path):
    run(tmp_path, policy=fs.Policy())
    with pytest.raises(JournalError, match="does not fit"):
        run(tmp_path)
    other = fs.Policy(secure_sum=fs.SecureSum(threshold=0.9))
    run(tmp_path / "secure")
    with pytest.raises(JournalError, match="does not fit"):
        run(tmp_path / "secure", policy=other)


def test_the_journal_holds_neither_secrets_nor_parts(tmp_path, monkeypatch):
    """Nor does the site's state in it: all that it has is the total, and the state that the step itself keeps."""
    made = []

    def noted(size):
        made.append(secrets.SystemRandom().randbytes(size))
        return made[-1]

    monkeypatch.setattr(masks.secrets, "token_bytes", noted)
    run(tmp_path)
    assert len(made) > 5 * 9
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [secret for secret in made if secret in written or secret.hex().encode() in written]
    assert len(written) < 60_000


@fs.step
def row_sums(site):
    return {"x": site.X.sum(axis=0)}


def test_what_the_coordinator_receives_holds_no_part(monkeypatch):
    seen = []
    whole = LocalEngine.call

    def call(self, *args):
        outcomes = whole(self, *args)
        seen.extend(np.asarray(value).tobytes() for o in outcomes.values() for value in o.reply.values())
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    sites = sites_of(5)
    fs.LocalFederation(sites, policy=SECURE).sum(row_sums)
    numbers = FixedPoint.of(fs.SecureSum())
    received = b"".join(seen)
    for site in sites:
        for value in site.X.sum(axis=0):
            assert value.tobytes() not in received
            assert numbers.encoded(np.array([value]))[0].tobytes() not in received
