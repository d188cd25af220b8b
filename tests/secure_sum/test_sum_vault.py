"""One call of one run has one question and one set of sites, whatever name its sum has and however often it begins."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import FedspanError, QuorumError
from fedspan.federation.calling import Root, View
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.secure_sum.sum_coordinator import SecureSummation
from fedspan.secure_sum.sum_site_steps import unmask
from fedspan.secure_sum.sum_vault import AnsweredQueries

from .players import Players, numbers_of, sites_of

SECURE = fs.Policy(secure_sum=True)


@fs.step
def counted(site):
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"calls": site.state["calls"]}


class Restarted(fs.Federation):
    """A coordinator that has lost its memory, and sites that have not."""

    def __init__(self, engine, run_dir=None):
        super().__init__(Root(engine, 0, SECURE, run_dir, SecureSummation(SECURE.secure_sum)), View(engine.sites))


@pytest.fixture
def engine():
    return fs.LocalFederation(sites_of(6), policy=SECURE)._root.engine


def sum_of(engine, names, **payload):
    """Return call 0 of the first run, as a coordinator that begins at its beginning makes it."""
    fed = Restarted(engine).subset(names)
    return fed.run(lambda fed: fed.sum(numbers_of, **payload or {"factor": 1.0}))


def test_the_same_call_over_fewer_sites_is_refused(engine):
    """The difference of the two would be the part of the site that is missing."""
    sum_of(engine, engine.sites)
    for names in (engine.sites[:-1], engine.sites[:2]):
        with pytest.raises(QuorumError, match="given a masked reply for another set of sites in call 0 of this run"):
            sum_of(engine, names)


def test_the_same_call_with_another_question_is_refused(engine):
    sum_of(engine, engine.sites)
    with pytest.raises(QuorumError, match="given a masked reply to another request in call 0 of this run"):
        sum_of(engine, engine.sites, factor=2.0)


def test_the_same_call_once_more_is_answered_under_other_keys(engine, monkeypatch):
    replies, whole = [], LocalEngine.call

    def call(self, call, *args):
        outcomes = whole(self, call, *args)
        if call.step.function.__name__ == "masked":
            replies.append(outcomes["s00"].reply["real"])
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    first, second = (sum_of(engine, engine.sites) for _ in range(2))
    np.testing.assert_array_equal(first["values"], second["values"])
    assert not np.any(replies[0] == replies[1])


@pytest.mark.parametrize("stage", ["offer", "share", "masked", "confirm", "unmask"])
def test_a_coordinator_that_was_killed_goes_on_with_sites_that_were_not(engine, tmp_path, stage):
    whole = LocalEngine.call

    def call(self, call, *args):
        outcomes = whole(self, call, *args)
        if call.step.function.__name__ == stage and call.number == 1:
            raise KeyboardInterrupt
        return outcomes

    def twice(fed):
        return [fed.sum(numbers_of, factor=float(k))["values"] for k in (1, 2)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "call", call)
        with pytest.raises(KeyboardInterrupt):
            Restarted(engine, tmp_path).run(twice)
    found = Restarted(engine, tmp_path).run(twice)
    expected = fs.LocalFederation(sites_of(6), policy=SECURE).run(twice)
    np.testing.assert_array_equal(found, expected)


def test_a_sum_that_begins_anew_takes_back_what_the_one_before_did(engine, tmp_path):
    """Also at a site that gets the first message of the second sum only when it is put once more."""
    whole, lost = LocalEngine.call, []

    def killed(self, call, *args):
        outcomes = whole(self, call, *args)
        if call.step.function.__name__ == "masked" and call.number == 1:
            raise KeyboardInterrupt
        return outcomes

    def losing(self, call, to, *args):
        gone = [] if lost else ["s01"]
        lost.extend(gone)
        outcomes = whole(self, call, [name for name in to if name not in gone], *args)
        return outcomes | {name: Failure(FailureKind.NO_REPLY, "lost") for name in gone}

    def three(fed):
        return [fed.sum(counted)["calls"] for _ in range(3)]

    for call in (killed, losing):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalEngine, "call", call)
            if call is killed:
                with pytest.raises(KeyboardInterrupt):
                    Restarted(engine, tmp_path).run(three)
            else:
                assert Restarted(engine, tmp_path).run(three) == [6, 12, 18]
    assert lost == ["s01"]


def test_a_second_sum_of_a_call_has_no_other_drop_outs():
    """Both are of the same six sites, and one of them is said to have left the first, and not the second."""
    players = Players(6)
    fewer = players.names[:5]
    tags = {}
    for session, alive in (("run/0/a", fewer), ("run/0/b", players.names)):
        players.up_to_masked(session)
        sent = [players.confirm(name, alive, session) for name in alive] + [np.zeros((6, 32), dtype=np.uint8)]
        tags[session] = np.stack(sent[:6])
    for k, name in enumerate(fewer):
        players.at(name, unmask, session="run/0/a", tags=tags["run/0/a"][:, k])
    for k, name in enumerate(fewer):
        with pytest.raises(FedspanError, match="helped to uncover the sum over another set of sites in call 0"):
            players.at(name, unmask, session="run/0/b", tags=tags["run/0/b"][:, k])
    # That one alone has given nothing yet, and its shares are fewer than the threshold.
    assert players.at("s05", unmask, session="run/0/b", tags=tags["run/0/b"][:, 5])["shares"].any()


def test_a_sum_with_another_set_of_drop_outs_is_answered_in_another_call():
    """If they are no fewer than a sum is over: two, and not one."""
    players = Players(6)
    for session, alive in (("run/0/a", players.names[:4]), ("run/1/a", players.names)):
        players.up_to_masked(session)
        assert players.unmask("s00", alive, session)["shares"].any()
    players.up_to_masked("run/2/a")
    with pytest.raises(FedspanError, match="would reveal the sum over 1 site, fewer than 2"):
        players.unmask("s00", players.names[:5], "run/2/a")


def test_memory_outlasts_the_run():
    players = Players(5)
    players.up_to_masked()
    vault = players.hosts["s00"].vault
    vault.forget("run")
    group = players.group(players.offers(players.names[:4], session="run/0/b"), "run/0/b", threshold=3)
    shares = players.shared(group)
    sealed = np.stack([shares[name]["sealed"][0] for name in sorted(shares)])
    with pytest.raises(FedspanError, match="another set of sites in call 0"):
        players.masked("s00", shares, "run/0/b", alive=np.ones(4, dtype=bool), sealed=sealed)


def test_a_forgotten_call_is_over():
    answers = AnsweredQueries()
    for number in range(100):
        answers.masked("run", number, b"question", ("a", "b"))
    for number in (0, 50, 67):
        with pytest.raises(FedspanError, match=f"call {number} of this run is over"):
            answers.masked("run", number, b"question", ("a", "b"))
        with pytest.raises(FedspanError, match="is over"):
            answers.unmasked("run", number, b"q", ("a",), 2)
    answers.masked("run", 68, b"question", ("a", "b"))
    with pytest.raises(FedspanError, match="another request in call 68"):
        answers.check("run", 68, b"another")
    answers.masked("another run", 0, b"question", ("a",))


def test_a_masked_reply_is_for_one_set_whichever_comes_first():
    for first, second in ((("a", "b"), ("a", "c")), (("a", "c"), ("a", "b")), (("a", "b"), ("a", "b", "c"))):
        answers = AnsweredQueries()
        answers.masked("run", 0, b"q", first)
        answers.masked("run", 0, b"q", first)
        with pytest.raises(FedspanError, match="for another set of sites in call 0"):
            answers.masked("run", 0, b"q", second)
        answers.unmasked("run", 0, b"q", first, 2)
        with pytest.raises(FedspanError, match="uncover the sum over another set of sites"):
            answers.unmasked("run", 0, b"q", second, 2)
