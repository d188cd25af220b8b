"""The hub at the coordinator: one call to several sites, and who is there."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from fedspan.engines.nvflare.server import hub as hubs
from fedspan.engines.nvflare.server.hub import LATE, Hub

from .conftest import wait_until


class Sites:
    """Sites behind a `carry`; what is in `trouble` raises this error instead of an answer."""

    def __init__(self):
        self.instances = {"north": b"1", "south": b"2"}
        self.trouble = {}
        self.held = threading.Event()
        self.holding = set()

    def carry(self, site, topic, request, limit):
        error = self.trouble.get((site, topic))
        if error is not None:
            raise error
        if topic == "alive":
            return self.instances[site]
        if site in self.holding:
            self.held.wait(60)
        return request + site.encode()


@pytest.fixture
def sites():
    made = Sites()
    yield made
    made.held.set()


@pytest.fixture
def hub(sites):
    made = Hub(sites.instances, sites.carry)
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


def test_the_first_question_of_a_user_waits_for_the_sites(sites):
    hub = Hub(sites.instances, sites.carry)
    answer = asked(hub).payload
    assert answer == {"hub": hub.instance, "online": ["north", "south"]}


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
    assert refused.get_header(MessageHeaderKey.ERROR) == "a site may not send requests to others"


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
