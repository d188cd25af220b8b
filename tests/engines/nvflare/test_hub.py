"""The hub at the coordinator: one call to several sites, and who is there."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from fedspan.engines.nvflare.server import hub as hubs
from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.server.hub import LATE, Hub
from fedspan.engines.remote.messages.identity import Participant
from fedspan.errors import MessageError

from .conftest import wait_until


class Sites:
    """Sites behind a `carry`; what is in `trouble` raises this error instead of an answer."""

    def __init__(self):
        self.instances = {"north": b"1", "south": b"2"}
        self.trouble = {}
        self.handed = {}
        self.held = threading.Event()
        self.holding = set()

    def carry(self, site, topic, request, limit):
        error = self.trouble.get((site, topic))
        if error is not None:
            raise error
        if topic == "alive":
            return self.instances[site]
        if topic in ("members", "notice"):
            self.handed.setdefault(site, []).append((topic, request))
            return b""
        if site in self.holding:
            self.held.wait(60)
        return request + site.encode()


@pytest.fixture
def sites():
    made = Sites()
    yield made
    made.held.set()


class Desk:
    """Stands for `Admittance`: every connection is that of alice, but those in `roles`."""

    def __init__(self, sites):
        self.sites, self.version, self.list_bytes = frozenset(sites), 1, b"list 1"
        self.disabled, self.notices, self.roles, self.revoked = {}, {}, {"north": None, "bob": "viewer"}, set()

    may_call = Admittance.may_call

    def warn(self):
        pass

    def user(self, origin):
        if origin in self.revoked:
            raise MessageError(f"the certificate of {origin!r} was revoked")
        role = self.roles.get(origin, "analyst")
        return None if role is None else Participant(origin, role)


@pytest.fixture
def desk(sites):
    return Desk(sites.instances)


@pytest.fixture
def hub(sites, desk):
    made = Hub(desk, sites.carry)
    made.question(60.0)
    return made


def asked(hub, origin="alice", **payload):
    return hub.request(new_cell_message({MessageHeaderKey.ORIGIN: origin}, payload))


def test_answers_and_reasons_are_those_of_each_site(hub, sites):
    sites.trouble["south", "call"] = ConnectionError("the site's worker is restarting")
    call = hub.call({"north": b"1", "south": b"2", "east": b"3"}, 5.0)
    assert call.result.result(timeout=60) == {
        "answers": {"north": b"1north"},
        "lost": {"south": "the site's worker is restarting", "east": "the federation has no such site"},
    }
    sites.trouble["south", "call"] = TimeoutError()
    assert hub.call({"south": b""}, 5.0).result.result(timeout=60)["lost"] == {"south": LATE}


@pytest.mark.parametrize("how", ["restarted", "not connected", "silent"])
def test_a_call_to_a_site_that_died_is_given_up_at_once_and_a_late_answer_changes_nothing(hub, sites, how, monkeypatch):
    sites.holding.add("south")
    call = hub.call({"north": b"1", "south": b"2"}, 600.0)
    if how == "restarted":
        sites.instances["south"] = b"3"
    else:
        sites.trouble["south", "alive"] = ConnectionError() if how == "not connected" else TimeoutError()
        monkeypatch.setattr(hubs, "SILENT", 0.0)
    hub.question(60.0)
    result = call.result.result(timeout=60)
    assert result["answers"] == {"north": b"1north"}
    assert how in result["lost"]["south"]
    assert asked(hub).payload["online"] == (["north", "south"] if how == "restarted" else ["north"])
    sites.held.set()
    assert call.result.result() is result


def test_a_slow_site_is_not_given_up(hub, sites):
    sites.holding.add("south")
    call = hub.call({"south": b"2"}, 600.0)
    sites.trouble["south", "alive"] = TimeoutError()
    hub.question(60.0)
    assert not call.result.done()
    assert asked(hub).payload["online"] == ["north", "south"]


def test_the_first_question_of_a_user_waits_for_the_sites(sites, desk):
    hub = Hub(desk, sites.carry)
    answer = asked(hub, version=1).payload
    assert answer == {"hub": hub.instance, "online": ["north", "south"], "disabled": {}}


def test_users_and_sites_get_the_list_before_anything_else(hub, sites, desk):
    assert asked(hub, version=0).payload["members"] == b"list 1"
    hub.call({"north": b""}, 60.0).result.result(timeout=60)
    assert sites.handed == {"north": [("members", b"list 1")]}
    desk.version, desk.list_bytes, desk.sites = 2, b"list 2", frozenset(["south"])
    desk.notices["south"] = "a copy was refused"
    hub.hand_out()
    news = {"north": [("members", b"list 1"), ("members", b"list 2")]}  # also to a site that was removed
    news["south"] = [("notice", b"a copy was refused"), ("members", b"list 2")]
    wait_until(lambda: sites.handed == news, "the list is not handed out")
    assert asked(hub, version=2).payload["online"] == ["south"]
    lost = asked(hub, to={"north": 0}, requests=[b""], limit=60.0).result(timeout=60).payload["lost"]
    assert lost == {"north": "the federation has no such site"}


def test_roles_disabled_sites_and_revoked_users(hub, desk):
    answer = asked(hub, origin="bob", to={"north": 0}, requests=[b""], limit=1.0).payload
    assert answer == {"answers": {}, "lost": {"north": "'bob' has the role 'viewer', which may not run steps"}}
    assert asked(hub, origin="bob", version=1).payload["online"] == ["north", "south"]
    desk.disabled["south"] = "disabled by the operator olga"
    assert asked(hub, version=1).payload["online"] == ["north"]
    lost = asked(hub, to={"south": 0}, requests=[b""], limit=60.0).result(timeout=60).payload["lost"]
    assert lost == {"south": "disabled by the operator olga"}
    desk.revoked.add("alice")
    for request in ({"version": 1}, {"to": {"north": 0}, "requests": [b""], "limit": 1.0}):
        assert asked(hub, **request).payload["denied"] == "the certificate of 'alice' was revoked"


def test_sites_are_watched_while_a_user_is_connected(hub, sites, monkeypatch):
    monkeypatch.setattr(hubs, "EVERY", 0.01)
    asked(hub)
    threading.Thread(target=hub.watch, daemon=True).start()
    sites.trouble["north", "alive"] = ConnectionError()
    wait_until(lambda: asked(hub).payload["online"] == ["south"], "north is still there")


def test_requests_travel_once_and_sites_send_none(hub):
    reply = asked(hub, to={"north": 0, "south": 0}, requests=[b"same "], limit=60.0).result(timeout=60)
    assert reply.payload["answers"] == {"north": b"same north", "south": b"same south"}
    refused = asked(hub, origin="north", to={"south": 0}, requests=[b""], limit=1.0)
    assert refused.get_header(MessageHeaderKey.ERROR) == "only a user that has logged in may send requests"


def test_the_cell_carries_bytes_and_its_codes_are_errors():
    class Cell:
        def __init__(self, code, payload=None):
            self.code, self.payload = code, payload

        def send_request(self, **request):
            return new_cell_message({MessageHeaderKey.RETURN_CODE: self.code}, self.payload)

    carry = hubs.cell_carry(Cell(ReturnCode.OK, b"answer"))
    assert carry("north", "call", b"", 1.0) == b"answer"
    with pytest.raises(TimeoutError):
        hubs.cell_carry(Cell(ReturnCode.TIMEOUT))("north", "call", b"", 1.0)
    with pytest.raises(ConnectionError, match="target_unreachable"):
        hubs.cell_carry(Cell(ReturnCode.TARGET_UNREACHABLE))("north", "call", b"", 1.0)
    with pytest.raises(ConnectionError):
        hubs.cell_carry(Cell(ReturnCode.OK, {"no": "bytes"}))("north", "call", b"", 1.0)
