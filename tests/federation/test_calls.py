"""Calls: what a protocol can ask, what travels, and what comes back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from fedspan.federation.site.pending_call import Kept

import fedspan as fs
from fedspan.errors import FedspanError, InputError, MessageError, UnknownStepError
from fedspan.federation.calls.call import Call, Delivery, Failure
from fedspan.federation.replies import Total
from fedspan.federation.site.steps import dotted_name, find_step
from fedspan.federation.site.transforms import Transform
from fedspan.wire import encode

from .conftest import count, make_sites, walk


@fs.step
def echo(site, **payload):
    return {key: value for key, value in payload.items() if value is not None}


@fs.step
def mean_of_rows(site):
    return {"mean": site.X.mean(axis=0), "n": len(site)}


@fs.step
def first_column(site):
    return {"column": site.X[:, 0]}


@fs.step
def spoil_payload(site, x):
    x[0] = 99.0
    return {}


@fs.step
def spoil_data(site):
    site.X[0] = 99.0
    return {}


@fs.step
def name_of(site):
    return {"name": site.name}


def test_ask_returns_every_reply_in_name_order(fed):
    replies = fed.ask(mean_of_rows)
    assert list(replies.ok) == list(replies) == list(fed.sites) == [f"s{i}" for i in range(7)]
    assert replies.failed == {}
    assert replies.stack("mean").shape == (7, 3)
    np.testing.assert_array_equal(replies["s3"]["mean"], make_sites()[3].X.mean(axis=0))
    assert replies.stack("n").tolist() == [4 + i for i in range(7)]


def test_what_was_not_sent_or_has_several_shapes_cannot_be_stacked(fed):
    with pytest.raises(InputError, match=r"^site 's0' sent no 'mean', it sent \['n'\]$"):
        fed.ask(count).stack("mean")
    with pytest.raises(InputError, match=r"'column' cannot be stacked: the sites sent the shapes \[\(4,\), \(5,\)"):
        fed.ask(first_column).stack("column")


def test_gather_is_ask(fed):
    assert fed.gather(count).stack("n").tolist() == fed.ask(count).stack("n").tolist()


def test_ask_some_sites(fed):
    assert list(fed.ask(count, ["s5", "s1"]).ok) == ["s1", "s5"]
    assert list(fed.subset(["s2"]).ask(count).ok) == ["s2"]
    with pytest.raises(InputError, match="no site named 'nobody'"):
        fed.ask(count, ["nobody"])


def test_a_step_can_be_called_by_its_dotted_name(fed):
    assert fed.sum(f"{count.__module__}.count")["n"] == 49


def test_only_installed_steps_can_be_called(fed):
    def not_a_step(site):
        return {}

    for unknown in (not_a_step, "os.system", "builtins.eval"):
        with pytest.raises(UnknownStepError, match="is not an installed step"):
            fed.ask(unknown)
    assert fed.record.calls == []


def test_reserved_and_unfitting_payloads_are_refused_before_any_site_is_asked(fed):
    for key in ("step", "to", "site"):
        with pytest.raises(MessageError, match=f"{key!r}, which is reserved"):
            fed.ask(echo, **{key: 1})
    with pytest.raises(MessageError, match="does not fit"):
        fed.ask(walk, push=1.0)
    assert fed.record.calls == []


def test_what_may_not_travel_is_refused_at_the_sender(fed):
    with pytest.raises(MessageError, match="payload key 'weights' holds a list"):
        fed.ask(echo, weights=[1.0])


def test_a_reply_that_may_not_travel_is_a_failed_site(wire):
    @fs.step
    def bad_at_s1(site):
        return {"x": [1] if site.name == "s1" else 1}

    replies = fs.LocalFederation(make_sites(), wire=wire).ask(bad_at_s1)
    assert "'x' holds a list" in replies.failed["s1"]
    assert len(replies.ok) == 6


def test_payloads_arrive_as_they_were(fed):
    sent = {"a": np.arange(6).reshape(2, 3).T, "b": 2.5, "c": "text", "d": np.array(["x", "yz"]), "e": 1j, "f": True}
    received = fed.ask(echo, **sent)["s0"]
    for key, value in sent.items():
        np.testing.assert_array_equal(received[key], value)
        assert np.asarray(received[key]).dtype == np.asarray(value).dtype
    assert received["a"].flags.c_contiguous


@pytest.mark.parametrize("step", [spoil_payload, spoil_data])
def test_neither_payload_nor_data_can_be_changed_at_a_site(fed, step):
    x = np.zeros(3)
    with pytest.raises(FedspanError, match="read-only"):
        fed.ask(step, **({"x": x} if step is spoil_payload else {}))
    assert x[0] == 0.0


def test_the_coordinator_cannot_change_what_a_site_keeps(fed):
    position = fed.ask(walk, pull=0.0)["s0"]["position"]
    with pytest.raises(ValueError, match="read-only"):
        position[0] = 99.0
    kept = np.array([1.0, 2.0])

    @fs.step
    def lend(site):
        return {"x": kept}

    lent = fed.ask(lend)["s0"]["x"]
    kept[0] = 50.0
    assert lent[0] == 1.0


def test_sums_and_means_by_hand(wire):
    sites = [fs.Site("a", np.array([[1.0], [2.0]])), fs.Site("b", np.array([[10.0]]))]

    @fs.step
    def parts(site):
        X = site.X
        return {
            "sum": X.sum(axis=0).astype(np.float32),
            "n": len(X),
            "f": 0.5,
            "flags": X[:1, 0] > 5,
            "u": np.uint8([200]),
        }

    fed = fs.LocalFederation(sites, wire=wire)
    total = fed.sum(parts)
    assert isinstance(total, Total)
    assert total.sites == ("a", "b")
    assert (total["sum"], total["n"], total["f"]) == (np.array([13.0]), 3, 1.0)
    assert total["sum"].dtype == np.float64
    assert total["flags"].tolist() == [1]
    assert total["u"].tolist() == [400]
    mean = fed.mean(parts)
    assert (mean["n"], mean["sum"], mean["f"]) == (1.5, np.array([6.5]), 0.5)


def test_sums_of_words_are_refused(fed):
    with pytest.raises(InputError, match="'name' is not a number"):
        fed.sum(name_of)


def test_a_sum_that_overflows_is_refused(fed):
    @fs.step
    def large(site):
        return {"x": np.array([1e308])}

    @fs.step
    def large_counts(site):
        return {"x": np.array([2**62])}

    with pytest.raises(InputError, match="overflows"):
        fed.sum(large)
    with pytest.raises(InputError, match="overflow 64 bits"):
        fed.sum(large_counts)


def test_replies_with_one_entry_per_row_may_have_any_length(fed):
    replies = fed.ask(first_column)
    assert replies.failed == {}
    assert [len(reply["column"]) for reply in replies.values()] == [4 + i for i in range(7)]
    with pytest.raises(InputError, match="cannot be stacked"):
        replies.stack("column")


def test_sample_draws_from_the_run_and_keeps_at_least_one(fed):
    assert len(fed.sample(1e-9).sites) == 1
    assert len(fed.sample(0.5).sites) == 4
    assert fed.sample(1.0).sites == fed.sites
    drawn = {fed.sample(0.3).sites for _ in range(50)}
    assert len(drawn) > 10
    for fraction in (0.0, 1.5, -1):
        with pytest.raises(InputError, match="fraction"):
            fed.sample(fraction)


def test_rounds_stop_and_say_why(fed):
    seen = []
    for t in fed.rounds(10):
        seen.append(t)
        if t == 2:
            fed.stop("close enough")
    assert seen == [0, 1, 2]
    assert fed.record.stopped == "close enough"
    assert list(fed.rounds(2)) == [0, 1]
    assert fed.record.stopped == "all 2 rounds done"


def test_log_takes_numbers_and_words_only(fed):
    for _ in fed.rounds(1):
        fed.ask(count)
        fed.log(loss=np.float32(0.5), note="fine", n=3)
    assert fed.record.metric("loss") == [0.5]
    assert fed.record.metrics[0].round == 0
    with pytest.raises(InputError, match="takes a number or text"):
        fed.log(x=np.zeros(2))
    with pytest.raises(MessageError, match="'x' holds a list"):
        fed.log(x=[1])


def test_two_labels_with_one_name_are_refused():
    with pytest.raises(InputError, match="both name the site '1'"):
        fs.federate(np.eye(3), sites=np.array([1, "1", 2], dtype=object))
    with pytest.raises(InputError, match="two sites have the name 'a'"):
        fs.LocalFederation([fs.Site("a", np.eye(2)), fs.Site("a", np.eye(2))])


def test_federate_splits_rows_by_label():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    fed = fs.federate(X, y, sites=[10, 9, 10, 9, 9, 2], task=y % 2)

    @fs.step
    def everything(site):
        return {"X": site.X, "y": site.y, "task": site.task}

    replies = fed.ask(everything)
    assert fed.sites == ("10", "2", "9")  # as text
    np.testing.assert_array_equal(replies["9"]["X"], X[[1, 3, 4]])
    np.testing.assert_array_equal(replies["9"]["y"], [1, 3, 4])
    np.testing.assert_array_equal(replies["10"]["task"], [0, 0])


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, 2], "one label for each of the 3 rows"),
        ([1.0, np.nan, 2.0], "missing value"),
        (np.array([1.0, np.nan, 2.0]), "NaN"),
        (["a", float("nan"), "b"], "missing value"),
        (pd.Series(["a", None, "b"], dtype="string"), "missing value"),
        (pd.to_datetime(pd.Series(["2020-01-01", None, "2020-01-02"])), "missing"),
        ([1, "1", 2], "both name the site"),
        (np.array(["a", None, "b"], dtype=object), "missing value"),
        (["a", "", "b"], "empty label"),
    ],
)
def test_bad_labels_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        fs.federate(np.eye(3), sites=labels)


@pytest.mark.parametrize("bad", [{"seed": -1}, {"seed": 1.5}, {"seed": True}, {"n_jobs": 0}, {"n_jobs": 1.5}])
def test_bad_federation_parameters_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        fs.LocalFederation(make_sites(), **bad)
    with pytest.raises(InputError, match="at least one site"):
        fs.LocalFederation([])
    with pytest.raises(InputError, match=r"use fedspan\.Site"):
        fs.LocalFederation([np.eye(2)])  # type: ignore[list-item]


def test_the_first_unknown_name_is_told_and_that_one_must_be_named(fed):
    with pytest.raises(InputError, match=r"^no site named 'xa' is in this federation of s0, s1"):
        fed.ask(count, ["xb", "s1", "xa"])
    with pytest.raises(InputError, match="no site was named, and one must be"):
        fed.ask(count, [])


def test_texts_of_different_lengths_are_counted_each(wire):
    fed = fs.LocalFederation([fs.Site(name, np.zeros((2, 1))) for name in ("a", "b" * 20, "c")], wire=wire)
    fed.ask(name_of)
    sizes = fed.record.calls[0].bytes_up
    assert sizes == {name: len(encode({"name": name})) for name in fed.sites}
    assert len(set(sizes.values())) == 2


def test_a_function_is_named_after_its_module_whatever_that_is_called():
    def function():
        """Not of a script."""

    for module in ("Zoo", "zoo.animals", "_"):
        function.__module__ = module
        assert dotted_name(function).startswith(f"{module}.test_")


class Absent:
    """An engine some of whose sites are away for a while."""

    def __init__(self, engine, times):
        self.call_them, self.times, self.waited, self.asked = engine.call, dict(times), [], []
        engine.call, engine.wait = self.call, self.wait

    def call(self, call, to, accepted, policy):
        self.asked.append(tuple(to))
        away = [site for site in to if self.times.get(site, 0) > 0]
        for site in away:
            self.times[site] -= 1
        there = self.call_them(call, [site for site in to if site not in away], accepted, policy)
        return there | {site: Failure("away: gone for lunch", away=True) for site in away}

    def wait(self, sites, seconds):
        self.waited.append(tuple(sites))
        return 0 < seconds <= 86400.0 and len(self.waited) < 5


def test_sites_that_are_away_are_asked_again_where_the_quorum_needs_them(fed):
    engine = Absent(fed._root.engine, {"s0": 1, "s1": 2, "s2": 2, "s3": 2})
    replies = fed.ask(count)
    # Four of seven are needed and three were there: then s0 is back, and that is enough.
    assert list(replies.ok) == ["s0", "s4", "s5", "s6"]
    assert replies.failed == dict.fromkeys(("s1", "s2", "s3"), "away: gone for lunch")
    assert engine.asked == [fed.sites, ("s0", "s1", "s2", "s3")]
    assert engine.waited == [("s0", "s1", "s2", "s3")]
    assert fed.sum(count)["n"] == 49  # with all of them there


def test_sites_that_are_away_are_not_waited_for_without_need_nor_in_vain(fed):
    engine = Absent(fed._root.engine, {"s0": 1, "s1": 1, "s2": 1})
    assert len(fed.ask(count).ok) == 4  # just enough
    engine.times = dict.fromkeys(fed.sites, 99)
    with pytest.raises(fs.errors.QuorumError, match="0 of 7 sites answered"):
        fed.ask(count)
    assert len(engine.waited) == 5  # until the engine says that nobody comes


def test_what_single_sites_are_told_besides_is_counted_for_them():
    payload, more = {"x": np.zeros(3)}, {"y": np.zeros(5)}
    call = Call("run", 0, 0, find_step(count), payload, ("a", "b"), apart={"b": more})
    assert call.payload_of("a") == payload
    assert call.payload_of("b").keys() == {"x", "y"}
    assert call.bytes_down == {"a": len(encode(payload)), "b": len(encode(payload | more))}
    transform = Transform.of(echo, {"by": 1.0})
    seen = Call("run", 0, 0, find_step(count), payload, ("a", "b"), transforms=(transform, transform))
    assert seen.bytes_down == dict.fromkeys("ab", len(encode(payload)) + 2 * transform.size)
    assert call.part == 0
    assert call.question("a") != call.question("b")
    alone = Call("other", 7, 1, find_step(count), payload, ("a",))
    assert call.question("a") == alone.question("a")  # whoever else is asked
    assert len({call.digest, seen.digest, alone.digest}) == 3


def test_a_part_of_a_sum_goes_on_with_what_is_pending_alone():
    def part(number, part, session):
        return Call("run", number, 0, find_step(count), {"session": session}, ("a",), part=part)

    kept = Kept(number=2, pending=[(part(3, 0, "x"), Delivery(3, {}))], pending_number=3)
    asked = [part(3, 1, "x"), part(3, 0, "x"), part(2, 1, "x"), part(4, 1, "x"), part(3, 1, "y"), part(4, 0, "x")]
    assert [kept.goes_on(call) for call in asked] == [True, False, False, False, False, False]
