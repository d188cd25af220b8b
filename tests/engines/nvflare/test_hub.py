"""The hub at the coordinator: it passes each answer on when it comes, and knows who is there."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")

from fedspan.engines.nvflare.flare import RefusedError
from fedspan.engines.nvflare.server import hub as hubs
from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.server.hub import LATE, Hub
from fedspan.engines.remote.messages.identity import Participant
from fedspan.errors import MessageError

from .conftest import wait_until


class Network:
    """Sites and users; what is in `trouble` raises this error instead of an answer."""

    def __init__(self):
        self.instances = {"north": "1", "south": "2"}
        self.trouble = {}
        self.held = threading.Event()
        self.holding = set()
        self.pushed = []
        self.handed = {}
        self.limits = []
        self.used = set()

    def to_sites(self, site, topic, head, body, limit):
        self.limits.append((site, topic, limit))
        error = self.trouble.get((site, topic))
        if error is not None:
            raise error
        if topic == "alive":
            self.used.add(head["used"])
            return {"instance": self.instances[site]}, b""
        if topic in ("members", "notice"):
            self.handed.setdefault(site, []).append((topic, body))
            return {}, b""
        if topic == "fetch":
            return {}, head["answer"].encode() * 2
        if site in self.holding:
            self.held.wait(60)
        return {}, bytes(body) + site.encode()

    def to_users(self, user, topic, head, body, limit):
        self.pushed.append((user, head.get("site"), head.get("lost", body)))
        return {}, b""

    def arrived(self, number):
        wait_until(lambda: len(self.pushed) >= number, "an answer is missing")
        return {site: answer for _, site, answer in self.pushed}


@pytest.fixture
def network():
    made = Network()
    yield made
    made.held.set()


class Desk:
    """Stands for `Admittance`: every connection is that of alice, but those in `roles`."""

    def __init__(self, sites):
        self.sites, self.version, self.list_bytes = frozenset(sites), 1, b"list 1"
        self.disabled, self.notices, self.roles, self.revoked = {}, {}, {"north": None, "bob": "viewer"}, set()
        self.site_versions, self.kit = {"north": "1.0"}, None

    may_call = Admittance.may_call

    def warn(self):
        pass

    repair = warn

    def user(self, origin):
        if origin in self.revoked:
            raise MessageError(f"the certificate of {origin!r} was revoked")
        role = self.roles.get(origin, "analyst")
        return None if role is None else Participant(origin, role)


@pytest.fixture
def desk(network):
    return Desk(network.instances)


@pytest.fixture
def hub(network, desk):
    made = Hub(desk, network.to_sites, network.to_users, network.to_sites)
    made.question(60.0)
    network.used.clear()
    return made


def call(hub, limit=600.0, **requests):
    """Call sites as alice, each with its own part of the body."""
    to, body = {}, b""
    for site, request in requests.items():
        to[site] = (len(body), len(body) + len(request))
        body += request
    return hub.answer("alice", "call", {"call": "1", "to": to, "limit": limit}, body)


def online(hub, who="alice"):
    return hub.answer(who, "online", {"version": 1}, b"")[0]["online"]


def test_answers_and_reasons_are_those_of_each_site(hub, network):
    network.trouble["south", "call"] = ConnectionError("the site's worker is restarting")
    call(hub, north=b"1", south=b"2", east=b"3")
    assert network.arrived(3) == {
        "north": b"1north",
        "south": "the site's worker is restarting",
        "east": "the federation has no such site",
    }
    network.pushed.clear()
    network.trouble["south", "call"] = TimeoutError()
    call(hub, south=b"")
    assert network.arrived(1) == {"south": LATE}


def test_an_answer_does_not_wait_for_the_slowest_site(hub, network):
    network.holding.add("south")
    call(hub, north=b"1", south=b"2")
    assert network.arrived(1) == {"north": b"1north"}
    network.held.set()
    assert network.arrived(2)["south"] == b"2south"


@pytest.mark.parametrize("how", ["restarted", "not connected", "silent"])
def test_a_call_to_a_site_that_died_is_given_up_at_once_and_a_late_answer_changes_nothing(
    hub, network, how, monkeypatch
):
    network.holding.add("south")
    call(hub, north=b"1", south=b"2")
    if how == "restarted":
        network.instances["south"] = "3"
    else:
        network.trouble["south", "alive"] = ConnectionError() if how == "not connected" else TimeoutError()
        monkeypatch.setattr(hubs, "SILENT", 0.0)
    hub.question(60.0)
    found = network.arrived(2)
    assert found["north"] == b"1north"
    assert how in found["south"]
    assert online(hub) == (["north", "south"] if how == "restarted" else ["north"])
    network.held.set()
    hub._threads.shutdown(wait=True)
    assert len(network.pushed) == 2


def test_a_slow_site_is_not_given_up(hub, network):
    network.holding.add("south")
    call(hub, south=b"2")
    network.trouble["south", "alive"] = TimeoutError()
    hub.question(60.0)
    assert network.pushed == []
    assert online(hub) == ["north", "south"]


def test_the_first_question_of_a_user_waits_for_the_sites(network, desk):
    hub = Hub(desk, network.to_sites, network.to_users, network.to_sites)
    about = {"hub": hub.instance, "online": ["north", "south"], "disabled": {}}
    assert hub.answer("alice", "online", {"version": 1}, b"") == (about, b"")


def test_users_and_sites_get_the_list_before_anything_else(hub, network, desk):
    assert hub.answer("alice", "online", {"version": 0}, b"")[1] == b"list 1"
    call(hub, north=b"")
    network.arrived(1)
    assert network.handed == {"north": [("members", b"list 1")]}
    desk.version, desk.list_bytes, desk.sites = 2, b"list 2", frozenset(["south"])
    desk.notices["south"] = "a copy was refused"
    hub.hand_out()
    news = {"north": [("members", b"list 1"), ("members", b"list 2")]}  # also to a site that was removed
    news["south"] = [("notice", b"a copy was refused"), ("members", b"list 2")]
    wait_until(lambda: network.handed == news, "the list is not handed out")
    assert online(hub) == ["south"]
    network.pushed.clear()
    call(hub, north=b"")
    assert network.arrived(1) == {"north": "the federation has no such site"}


def test_roles_disabled_sites_and_revoked_users(hub, network, desk):
    with pytest.raises(RefusedError, match="'bob' has the role 'viewer', which may not run steps"):
        hub.answer("bob", "call", {"call": "1", "to": {"north": (0, 0)}, "limit": 1.0}, b"")
    assert online(hub, "bob") == ["north", "south"]
    desk.disabled["south"] = "disabled by the operator olga"
    assert online(hub) == ["north"]
    call(hub, south=b"")
    assert network.arrived(1) == {"south": "disabled by the operator olga"}
    desk.revoked.add("alice")
    for topic in ("online", "call", "fetch"):
        denied = {"denied": "the certificate of 'alice' was revoked"}
        assert hub.answer("alice", topic, {}, b"") == (denied, b"list 1")


@pytest.mark.parametrize("used", [True, False])
def test_sites_are_watched_and_the_page_shows_who_is_here(hub, network, desk, monkeypatch, tmp_path, used):
    desk.kit = tmp_path
    for name in ("EVERY", "CALM"):
        monkeypatch.setattr(hubs, name, 0.01)
    if used:
        online(hub)
    threading.Thread(target=hub.watch, daemon=True).start()

    def shown():
        file = tmp_path / "online.json"
        return json.loads(file.read_bytes())["online"] if file.exists() else None

    wait_until(lambda: shown() == {"north": "1.0", "south": ""}, "the sites are not shown")
    network.trouble["north", "alive"] = ConnectionError()
    wait_until(lambda: shown() == {"south": ""}, "north is still there")
    assert network.used == {used}


def test_a_watch_survives_a_full_disk(hub, network, desk, monkeypatch, tmp_path):
    desk.kit = tmp_path / "full"
    for name in ("EVERY", "CALM"):
        monkeypatch.setattr(hubs, name, 0.01)
    threading.Thread(target=hub.watch, daemon=True).start()
    network.trouble["north", "alive"] = ConnectionError()
    wait_until(lambda: hub.state()["online"] == {"south": ""}, "north is still there")
    desk.kit.mkdir()
    wait_until(lambda: (desk.kit / "online.json").exists(), "nothing is written")


def test_sites_that_join_fall_silent_and_come_back_are_reported_once(hub, network, desk, monkeypatch, capsys):
    """A site that has restarted joins again, which is reported; one that was removed is not reported any more."""
    monkeypatch.setattr(hubs, "SILENT", -1.0)
    hub.joined("north")
    for error in (ConnectionError(), TimeoutError(), None, None, TimeoutError(), None):
        network.trouble["north", "alive"] = error
        hub.question(60.0)
    network.instances["south"] = "3"
    hub.joined("south")
    hub.question(60.0)
    network.trouble["south", "alive"] = ConnectionError()
    desk.sites = frozenset(["north"])
    for _ in range(3):
        hub.question(60.0)
    assert [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "north joined", "north is not connected", "north is back", "north is silent", "north is back", "south joined",
    ]  # fmt: skip


def test_a_large_answer_is_fetched_through_the_hub(hub):
    fetched = hub.answer("alice", "fetch", {"site": "north", "answer": "ab"}, b"")
    assert isinstance(fetched, Future)
    assert fetched.result(timeout=60) == ({}, b"abab")


def test_a_site_may_not_call_others(hub, network):
    with pytest.raises(RefusedError, match="only a user that has logged in may send requests"):
        hub.answer("north", "call", {"call": "1", "to": {"south": (0, 0)}, "limit": 1.0}, b"")
    assert network.pushed == []


def test_a_site_that_is_removed_before_it_had_any_list_is_informed(hub, network, desk):
    desk.version, desk.list_bytes, desk.sites = 2, b"list 2", frozenset(["south"])
    hub.hand_out()
    informed = [("members", b"list 2")]
    wait_until(lambda: network.handed == {"north": informed, "south": informed}, "the list is not handed out")
    hub._threads.shutdown(wait=True)
    assert hub._known == {"south"}


def is_free(body):
    try:
        len(body)
    except ValueError:
        return True
    return False


def test_large_messages_are_freed_when_they_were_passed_on(hub, network):
    """NVIDIA FLARE keeps what it has received for a minute, and the coordinator would hold all of it."""
    body = memoryview(bytearray(b"12"))
    hub.answer("alice", "call", {"call": "1", "to": {"north": (0, 2), "south": (0, 2)}, "limit": 600.0}, body)
    assert network.arrived(2) == {"north": b"12north", "south": b"12south"}
    wait_until(lambda: is_free(body), "the request is not freed")
    network.pushed.clear()
    network.trouble["south", "call"] = TimeoutError()  # it may still be under way to this site
    body = memoryview(bytearray(b"34"))
    hub.answer("alice", "call", {"call": "2", "to": {"north": (0, 2), "south": (0, 2)}, "limit": 600.0}, body)
    assert network.arrived(2) == {"north": b"34north", "south": LATE}

    large = {
        "1": memoryview(bytearray(b"first")),
        "2": memoryview(bytearray(b"second")),
        "3": memoryview(bytearray(b"third")),
    }
    hub._fetch = lambda site, topic, head, body, limit: ({}, large[head["answer"]])
    for number, have in (("1", []), ("2", []), ("3", [["north", "2"]])):
        hub.answer("alice", "fetch", {"site": "north", "answer": number, "have": have}, b"").result(60)
    assert [is_free(large[number]) for number in "123"] == [False, True, False]  # 1 may still be under way
    hub._threads.shutdown(wait=True)
    assert not is_free(body)


def test_a_site_that_is_just_connecting_is_probed_again_soon(hub, network):
    """Its process is connected before it answers; without this its run would wait for the whole limit of a probe."""
    network.trouble["south", "alive"] = ConnectionError("killed")
    hub.question(60.0)
    assert online(hub) == ["north"]
    network.trouble["south", "alive"] = TimeoutError()
    network.limits.clear()
    for _ in range(5):
        hub.question(60.0)
    assert [limit for site, _, limit in network.limits if site == "south"] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert {limit for site, _, limit in network.limits if site == "north"} == {5.0}
    del network.trouble["south", "alive"]
    hub.question(60.0)
    assert online(hub) == ["north", "south"]
    network.trouble["south", "alive"] = ConnectionError("killed again")
    hub.question(60.0)
    network.limits.clear()
    hub.question(60.0)
    assert ("south", "alive", 1.0) in network.limits
