"""Approval: with ``approval = "required"`` nothing runs that the owner has not approved, and nothing else than that."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.errors import FedspanError, PolicyError, QuorumError
from fedspan.federation.site.transforms import Transform
from fedspan.owner.decisions import ALWAYS, MOST_WAITING, ONCE, REFUSED, Decisions
from fedspan.owner.study_plan import LARGEST, SECURE, PlannedRun, PlannedStep, StudyPlan, named_values, value_texts
from tests.engines.remote.people import authority, user

from .owner_desk import NUMBERS, OFFER, SUMS, Desk, Wires

REQUIRED = 'approval = "required"'
CENTRED = "sums.centred_sums"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("fedspan.engines.remote.coordinator.proposal.PAUSE", 0.02)


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "site", REQUIRED)
    yield made
    made.worker.close()


def plan(calls=2, **parameters):
    return StudyPlan("sums", (PlannedRun("Demo", "", (PlannedStep(SUMS, calls, parameters=parameters),)),))


def approved(desk, ticket="t1", decision=ONCE, planned=None, who="alice"):
    decisions = Decisions(desk.owned.file.decisions)
    decisions.propose(who, ticket, planned or plan())
    return decisions.decide(ticket, decision, "because", "owner")


def test_a_study_that_was_not_proposed_is_refused_before_data_are_read(desk):
    assert "approves every study before it runs" in desk.ask(run="Demo#0 x")
    assert "approves every study" in desk.ask(run="Demo#0 x", study="t9")
    assert not any(line["ran"] for line in desk.lines())


def test_also_a_step_that_reveals_nothing_needs_approval(desk):
    assert "approves every study" in desk.ask("sums.columns", run="Demo#0 x", payload={"text": False})


def test_once_is_for_one_run_and_its_calls(desk):
    approved(desk)
    assert "sum" in desk.ask(run="Demo#0 x", study="t1")
    assert "sum" in desk.ask(run="Demo#0 x", study="t1", number=1, after=0)
    assert "at most 2 calls" in desk.ask(run="Demo#0 x", study="t1", number=2, after=1)
    assert "no further run of 'Demo'" in desk.ask(run="Demo#1 y", study="t1")
    assert "not in the study" in desk.ask("sums.bad_values", run="Demo#0 x", study="t1", number=2, after=1)


def test_calls_are_counted_behind_many_transforms(desk):
    """The log keeps 20 ids in a line. Behind 25 transforms no call was found in it, and as many as wanted were free."""
    views = tuple(Transform("sums.standardize", {"mean": np.zeros(2), "scale": None}) for _ in range(25))
    parameters = dict.fromkeys(named_values({}, views), ())
    step = PlannedStep(SUMS, 1, transforms=tuple(view.id for view in views), parameters=parameters)
    approved(desk, planned=StudyPlan("sums", (PlannedRun("Demo", "", (step,)),)))
    assert "sum" in desk.ask(run="Demo#0 x", study="t1", transforms=views)
    assert "at most 1 calls" in desk.ask(run="Demo#0 x", study="t1", number=1, after=0, transforms=views)


def test_single_replies_are_counted_apart_from_secure_sums(desk):
    """One plain sum and nine secure ones were approved, and ten plain sums left: the coordinator saw ten replies."""
    steps = PlannedStep(SUMS, 1, "sum"), PlannedStep(SUMS, 9, SECURE)
    approved(desk, planned=StudyPlan("sums", (PlannedRun("Demo", "", steps),)))
    assert "sum" in desk.ask(run="Demo#0 x", study="t1", over={"how": "sum"})
    more = {"run": "Demo#0 x", "study": "t1", "number": 1, "after": 0}
    assert "at most 1 calls" in desk.ask(**more, over={"how": "sum"})
    asked = {"session": "Demo#0 x/1/0", "what": SUMS, **NUMBERS}
    assert "key" in desk.ask(OFFER, payload=asked, **more)


def test_a_second_line_about_a_step_allows_no_more_of_the_first(desk):
    """One call with one array was approved, and nine with another: ten with the first one left."""
    first, second = np.full(2, 0.5), np.full(2, 2.0)
    steps = [PlannedStep(CENTRED, n, parameters={"centre": value_texts(v)[-1:]}) for v, n in ((first, 1), (second, 9))]
    approved(desk, planned=StudyPlan("x", (PlannedRun("Demo", "", tuple(steps)),)))
    ask = {"payload": {"centre": first}, "run": "Demo#0 x", "study": "t1"}
    assert "sum" in desk.ask(CENTRED, **ask)
    assert "at most 1 calls" in desk.ask(CENTRED, number=1, after=0, **ask)


def test_a_reply_that_was_not_logged_counts_when_it_is_repeated(desk, monkeypatch):
    """A process that ended between its record of the reply and its log gave one reply more than was approved."""
    approved(desk, planned=plan(1))

    def ended(*given):
        raise SystemExit

    monkeypatch.setattr(desk.worker.admission, "_write", ended)
    with pytest.raises(SystemExit):
        desk.ask(run="Demo#0 x", study="t1")
    desk.open()
    for _ in range(2):  # a repeated one, counted once
        assert "sum" in desk.ask(run="Demo#0 x", study="t1")
    assert [line["ran"] for line in desk.lines()] == [True, False]
    assert "at most 1 calls" in desk.ask(run="Demo#0 x", study="t1", number=1, after=0)


def test_calls_that_a_lost_disk_needs_again_are_as_many_as_were_approved(desk):
    """Each counted twice: the second one was refused, and a study that had used its calls could not be resumed."""
    mean = PlannedStep(CENTRED, 1, "mean", parameters={"centre": value_texts(np.ones(2))[-1:]})
    asked = PlannedStep(CENTRED, 3, parameters={"centre": value_texts(np.zeros(2))[-1:]})
    approved(desk, planned=StudyPlan("x", (PlannedRun("Demo", "", (mean, asked)),)))
    ask = {"payload": {"centre": np.zeros(2)}, "run": "Demo#0 x", "study": "t1"}
    for number in range(3):
        assert "sum" in desk.ask(CENTRED, number=number, after=number - 1, **ask)
    desk.worker.close()
    shutil.rmtree(desk.folder / "store")
    desk.open()
    for number in range(3):
        assert desk.ask(CENTRED, number=number, after=number - 1, kind="redo", **ask) == "done"
    assert "at most" in desk.ask(CENTRED, number=3, after=2, **ask)


def test_a_call_that_is_done_again_does_not_tell_whether_it_fails(tmp_path):
    """At a site that gives secure sums only, a transform that scales rows out of range found the largest cell."""
    desk = Desk(tmp_path / "site", 'level = "secure"')
    largest = float(np.abs(pd.read_csv(desk.folder / "rows.csv")["a"]).max())
    for number, factor in enumerate((1e3, 0.9)):
        scale = np.array([largest * factor / np.finfo(float).max, 1.0])
        view = Transform("sums.standardize", {"mean": np.zeros(2), "scale": scale}, ("a", "b"))
        assert desk.ask(run=f"r{number}", kind="redo", transforms=(view,)) == "done"
    assert [line["outcome"] for line in desk.lines()] == ["answered"] * 2
    desk.worker.close()


def test_a_call_that_is_done_again_is_about_as_many_rows_as_its_reply_would_be(tmp_path):
    """No sums about few rows leave. Another step would show what was done to the state with them."""
    desk = Desk(tmp_path / "site")
    centres = {"done": 0, "turn": 0, "draw": 0, "blocks": 1, "Y": np.zeros((1, 2)), "counts": None}
    for kind in ("call", "redo"):
        assert "single rows" in desk.ask("atlases.centres", run=kind, kind=kind, payload=centres)
    assert [line["outcome"] for line in desk.lines()] == ["refused"] * 2
    run = desk.worker.store.run("secure")
    run.begin("alice", desk.worker.fingerprint)
    run.secure(2)  # a run of secure sums gets no single replies
    assert desk.ask("atlases.centres", run="secure", kind="redo", payload=centres) == "done"
    assert "secure sums only" in desk.ask("atlases.centres", run="secure", number=1, payload=centres)
    desk.worker.close()


def test_two_arrays_whose_digests_agree_in_64_bits_are_two(desk, monkeypatch):
    """Approvals had 64 bits of a digest: two arrays with the same ones, one of them harmless, can be found in hours."""
    harmless, harmful = np.zeros(3), np.ones(3)
    made = value_texts(harmless)[-1].rpartition(" ")[2]
    assert len(made) == 32

    def colliding(data, **settings):
        found = hashlib.blake2b(data, **settings).hexdigest()
        return SimpleNamespace(hexdigest=lambda: made[:16] + found[16:])

    monkeypatch.setattr("fedspan.owner.study_plan.blake2b", colliding)
    approved_step = PlannedStep(SUMS, 1, parameters={"centre": value_texts(harmless)[-1:]})
    assert approved_step.other({"centre": harmless}) == ""
    assert "was planned" in approved_step.other({"centre": harmful})
    many = [PlannedStep(SUMS, 1, parameters={"names": value_texts(letter * 300)}) for letter in "ab"]
    assert many[0].other({"names": "a" * 300}) == ""
    assert "was planned" in many[0].other({"names": "b" * 300})
    plans = [StudyPlan("x", (PlannedRun("Demo", "", (one,)),)) for one in many]
    assert plans[0].digest != plans[1].digest


def test_calls_are_counted_over_restarts_and_under_one_number(desk):
    approved(desk)
    desk.ask(run="Demo#0 x", study="t1")
    desk.open()
    again = desk.ask(run="Demo#0 x", study="t1", over={"seed": "6"})  # another call under the same number
    assert "sum" in again
    assert "used up" in desk.ask(run="Demo#0 x", study="t1", over={"seed": "7"})


def test_a_repeated_call_is_answered_as_before(desk):
    approved(desk, planned=plan(1))
    first = desk.ask(run="Demo#0 x", study="t1")
    again = desk.ask(run="Demo#0 x", study="t1")
    assert np.array_equal(first["sum"], again["sum"])


def test_a_ticket_of_another_user_is_of_no_use(desk):
    approved(desk)
    assert "not proposed" in desk.ask(run="Demo#0 x", study="t1", who=user("bob"))


def test_other_parameters_and_transforms_are_refused(desk):
    centred = "sums.centred_sums"
    planned = StudyPlan(
        "x", (PlannedRun("Demo", "", (PlannedStep(centred, 3, parameters={"centre": ("float64 (2,)",)}),)),)
    )
    approved(desk, planned=planned)
    ask = {"run": "Demo#0 x", "study": "t1"}
    refused = desk.ask(centred, payload={"centre": np.zeros(3)}, **ask)
    assert "centre is float64 (3,)" in refused
    assert "and float64 (2,) was planned" in refused
    moved = Transform("sums.standardize", {"mean": np.zeros(2), "scale": np.ones(2)}, ("a", "b"))
    assert "not put in this way" in desk.ask(centred, payload={"centre": np.zeros(2)}, transforms=(moved,), **ask)
    assert not isinstance(desk.ask(centred, payload={"centre": np.zeros(2)}, **ask), str)


def test_a_transform_with_other_parameters_is_refused(desk):
    moved = Transform("sums.standardize", {"mean": np.zeros(2), "scale": np.ones(2)}, ("a", "b"))
    fixed = {name: value_texts(value)[-1:] for name, value in named_values({}, [moved]).items()}
    step = PlannedStep("sums.sums", 9, transforms=("sums.standardize",), parameters=fixed)
    approved(desk, planned=StudyPlan("x", (PlannedRun("Demo", "", (step,)),)))
    ask = {"run": "Demo#0 x", "study": "t1"}
    assert "sum" in desk.ask(transforms=(moved,), **ask)
    for other in (
        Transform(moved.id, {"mean": np.array([0.0, 4.0]), "scale": np.ones(2)}, ("a", "b")),
        Transform(moved.id, dict(moved.parameters), ("b", "a")),
        Transform(moved.id, {**moved.parameters, "double": True}, ("a", "b")),
    ):
        refused = desk.ask(transforms=(other,), number=1, after=0, **ask)
        assert "not as this site's owner approved it" in refused, refused
    step = PlannedStep("sums.sums", 1, parameters={"wide": ("true",)})
    assert step.other({}) == "wide is not given, and true was planned"
    assert step.other({"wide": True}) == ""


def test_always_covers_the_same_plan_of_the_same_user_and_no_other(desk):
    approved(desk, decision=ALWAYS)
    decisions = Decisions(desk.owned.file.decisions)
    assert decisions.propose("alice", "t2", plan()).approved
    assert not decisions.propose("alice", "t3", plan(3)).approved
    assert not decisions.propose("bob", "t4", plan()).approved
    assert "sum" in desk.ask(run="Demo#0 x", study="t2")
    decisions.decide("t1", REFUSED, "no more")
    assert not decisions.propose("alice", "t5", plan()).approved
    assert "has refused this study: no more" in desk.ask(run="Demo#0 x", study="t2", number=1, after=0)


def test_one_approval_after_a_lasting_one_leaves_no_other_study_approved(desk):
    """Studies that were proposed while their plan was approved for good ran on after the owner had approved it once."""
    approved(desk, decision=ALWAYS)
    decisions = Decisions(desk.owned.file.decisions)
    assert all(decisions.propose("alice", f"later {k}", plan()).approved for k in range(3))
    assert "sum" in desk.ask(run="Demo#0 x", study="later 0")
    decisions.decide("t1", ONCE)
    for k in range(3):
        assert "has not decided" in desk.ask(run=f"Demo#{k} x", study=f"later {k}", number=k, after=k - 1)
    assert "sum" in desk.ask(run="Demo#9 x", study="t1")


def test_a_refusal_has_the_owners_reason(desk):
    approved(desk, decision=REFUSED)
    assert "has refused this study: because" in desk.ask(run="Demo#0 x", study="t1")


def test_a_longer_ticket_of_a_user_takes_no_decision_from_the_owner(desk):
    """A study "t1" could not be withdrawn once the user had proposed another one as "t12"."""
    approved(desk)
    decisions = Decisions(desk.owned.file.decisions)
    decisions.propose("alice", "t12", plan(3))
    assert decisions.decide("t1", REFUSED, "withdrawn").ticket == "t1"
    assert "has refused this study: withdrawn" in desk.ask(run="Demo#0 x", study="t1")


def test_a_plan_that_grows_when_it_is_written_closes_no_site(desk):
    """A plan of 215 kB with umlauts had 600 kB in the file of decisions, which then could not be read by anyone."""
    run = {"what": "FedPCA", "settings": "\u00e9" * 500, "steps": [], "privacy": "\u00e9" * 500}
    text = json.dumps({"title": "t", "runs": [run] * 100, "secure": False}, ensure_ascii=False).encode()
    assert len(text) < LARGEST
    with pytest.raises(FedspanError, match="too long"):
        StudyPlan.read(text)
    decisions = Decisions(desk.owned.file.decisions)
    with pytest.raises(FedspanError, match="too long"):  # also one that comes another way leaves nothing in the file
        decisions.propose(
            "alice", "t1", StudyPlan("t", tuple(PlannedRun("FedPCA", "\u00e9" * 500) for _ in range(200)))
        )
    approved(desk, "t2")
    assert "sum" in desk.ask(run="Demo#0 x", study="t2")


@pytest.mark.parametrize("name", ["Demo#0 x\u202e", "Demo#0\nx", "Demo#0 \x1b[2J"])
def test_a_run_has_a_name_by_which_the_owner_can_stop_it(desk, name):
    """Pages and terminals show such signs in another way, and what they sent back was not the run."""
    assert "no control signs" in desk.ask(run=name)
    assert "no control signs" in desk.ask(run="Demo#0 x", study=name)


def test_pause_stop_and_resume_count_at_once(desk):
    approved(desk, planned=plan(9))
    ask = {"run": "Demo#0 x", "study": "t1"}
    assert "sum" in desk.ask(**ask)
    owner = Decisions(desk.owned.file.decisions)
    owner.pause("maintenance")
    assert desk.ask(number=1, after=0, **ask) == "this site's owner has paused it: maintenance"
    assert desk.found.head["again"] is True  # a run may wait
    owner.resume()
    assert "sum" in desk.ask(number=1, after=0, **ask)
    owner.stop("Demo#0 x", "enough")
    assert "has stopped this run: enough" in desk.ask(number=2, after=1, **ask)


def test_a_site_without_approval_can_be_paused_and_its_runs_stopped(tmp_path):
    desk = Desk(tmp_path / "site")
    owner = Decisions(desk.owned.file.decisions)
    assert "sum" in desk.ask()
    owner.stop("r")
    assert desk.ask(number=1, after=0) == "this site's owner has stopped this run"
    assert "sum" in desk.ask(run="other")
    desk.worker.close()


def test_what_is_stopped_while_a_step_runs_does_not_leave(desk, monkeypatch):
    approved(desk, planned=plan(9))
    owner, performed = Decisions(desk.owned.file.decisions), desk.worker._performed

    def stopped_meanwhile(*given):
        found = performed(*given)
        owner.stop("Demo#0 x")
        return found

    monkeypatch.setattr(desk.worker, "_performed", stopped_meanwhile)
    assert "has stopped this run" in desk.ask(run="Demo#0 x", study="t1")


def test_what_is_withdrawn_while_a_step_runs_does_not_leave(desk, monkeypatch):
    approved(desk, planned=plan(9))
    owner, performed = Decisions(desk.owned.file.decisions), desk.worker._performed

    def withdrawn_meanwhile(*given):
        found = performed(*given)
        owner.decide("t1", REFUSED, "not this one")
        return found

    monkeypatch.setattr(desk.worker, "_performed", withdrawn_meanwhile)
    assert "has refused this study: not this one" in desk.ask(run="Demo#0 x", study="t1")


def test_a_sum_is_one_of_its_own_run_alone(tmp_path):
    """The name of a run could begin with that of another: a sum went on there, and ended with the other run."""
    desk = Desk(tmp_path / "site")
    asked = {"what": SUMS, **NUMBERS}
    assert "another call" in desk.ask(OFFER, payload={"session": "r/0/0/a", **asked})
    assert "key" in desk.ask(OFFER, run="r/1", payload={"session": "r/1/0/a", **asked})
    assert desk.ask(kind="end") == "done"
    assert desk.worker.host.vault.about("r/1/0/a") == SUMS
    assert desk.ask(run="r/1", kind="end") == "done"
    assert desk.worker.host.vault.about("r/1/0/a") == ""
    desk.worker.close()


def test_few_studies_of_a_user_may_wait(desk):
    decisions = Decisions(desk.owned.file.decisions)
    for number in range(MOST_WAITING):
        decisions.propose("alice", f"t{number}", plan(number + 1))
    with pytest.raises(PolicyError, match="no more are accepted"):
        decisions.propose("alice", "more", plan(99))
    decisions.propose("bob", "other", plan())


def test_an_altered_file_of_decisions_closes_the_site(desk):
    approved(desk)
    path = desk.owned.file.decisions
    path.write_bytes(path.read_bytes().replace(b'"once"', b'"alwa"'))
    assert "nothing runs without it" in desk.ask(run="Demo#0 x", study="t1")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"title": 1, "runs": [], "secure": false}', "x" * 2**19])
def test_a_plan_that_is_none_is_refused(text):
    with pytest.raises(FedspanError):
        StudyPlan.read(text)


def test_a_plan_has_at_most_1000_steps_each_with_names_of_500_letters():
    def read(steps, letters):
        many = tuple(PlannedStep("s" * letters, 1) for _ in range(steps))
        return StudyPlan.read(StudyPlan("x", (PlannedRun("Demo", "", many),)).text())

    assert len(read(1000, 1).runs[0].steps) == 1000
    assert len(read(1, 500).runs[0].steps[0].step) == 500
    for steps, letters in ((1001, 1), (1, 501)):
        with pytest.raises(FedspanError):
            read(steps, letters)


# Whole studies, proposed by a rehearsal.


@pytest.fixture
def desks(tmp_path):
    made = [Desk(tmp_path / name, REQUIRED, name=name) for name in "abc"]
    yield made
    for one in made:
        one.worker.close()


def decide_all(desks, decision, count=1):
    """Decide about the next studies that are proposed, as owners would."""

    def wait(desk):
        decisions = Decisions(desk.owned.file.decisions)
        until = time.monotonic() + 300.0
        while time.monotonic() < until:
            decisions.read()
            waiting = [one for one in decisions.proposals.values() if one.state == "waiting"]
            if len(waiting) >= count:
                for one in waiting:
                    decisions.decide(one.ticket, decision, "no")
                return
            threading.Event().wait(0.1)

    threads = [threading.Thread(target=wait, args=(desk,), daemon=True) for desk in desks]
    for thread in threads:
        thread.start()
    return threads


def federation(desks, **settings):
    return RemoteFederation(Wires(*desks), user(), authority(["a", "b", "c"]), **settings)


def study(fed):
    scaler = fs.FedStandardScaler().fit(fed)
    return fs.FedPCA(1, solver="fedpg", max_rounds=40).fit(scaler.transform(fed))


@pytest.mark.parametrize("secure", [False, True])
def test_a_study_runs_as_proposed(desks, secure):
    settings = {"policy": fs.Policy(secure_sum=True)} if secure else {}
    work = (lambda fed: fs.FedPCA(1).fit(fed)) if secure else study
    with federation(desks, **settings) as fed:
        threads = decide_all(desks, ONCE)
        lines = []
        fed.propose(work, "a study", lines.append)
        for thread in threads:
            thread.join(300)
        model = work(fed)
        assert all("waits for the approval" in line for line in lines)
        with pytest.raises(QuorumError, match="no further run"):
            work(fed)
    assert model.run_.failures == []


def test_a_study_that_waits_is_on_the_owners_screen_once(desks):
    notices = []
    desks[0].worker.notify = notices.append
    with federation(desks) as fed:
        for work in (study, lambda one: fs.FedPCA(1).fit(one)):
            decide_all(desks, ONCE)
            fed.propose(work)
    tickets = desks[0].owned.admission.decisions.proposals
    assert notices == [f"a study of alice waits for your approval: {ticket}" for ticket in tickets]


def test_other_rounds_than_planned_are_refused(desks):
    with federation(desks) as fed:
        decide_all(desks, ALWAYS)
        fed.propose(lambda one: fs.FedPCA(1).fit(one))
        with pytest.raises(QuorumError, match="not as this site's owner approved it"):
            fs.FedPCA(1, solver="fedpg", max_rounds=40).fit(fed)


def test_a_refused_study_names_the_reason(desks):
    with federation(desks) as fed:
        decide_all(desks, REFUSED)
        with pytest.raises(PolicyError, match="refused it: no"):
            fed.propose(lambda one: fs.FedPCA(1).fit(one))


def test_a_resumed_study_is_the_one_that_was_approved(desks, tmp_path):
    with federation(desks, run_dir=tmp_path / "run") as fed:
        decide_all(desks, ONCE)
        fed.propose(study)
        first = study(fed)
    with federation(desks, run_dir=tmp_path / "run") as fed:
        fed.propose(study)  # no further decision
        assert np.array_equal(study(fed).components_, first.components_)
