"""A site's end of the connection."""

from __future__ import annotations

import threading
from multiprocessing.connection import Listener

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from fedspan.engines.nvflare.site import site_link
from fedspan.engines.nvflare.site.site_link import SiteLink

from .conftest import wait_until


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker that repeats what it gets, and counts its connections."""
    monkeypatch.chdir(tmp_path)
    listener, links = Listener("worker.sock", "AF_UNIX"), []

    def serve(link):
        while True:
            try:
                link.send_bytes(link.recv_bytes() * 2)
            except (EOFError, OSError):
                links.remove(link)
                return

    def accept():
        while True:
            try:
                links.append(listener.accept())
            except OSError:
                return
            threading.Thread(target=serve, args=(links[-1],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield links
    listener.close()


def sent(link, payload=b"", topic="call", origin="server"):
    headers = {MessageHeaderKey.ORIGIN: origin, MessageHeaderKey.TOPIC: topic}
    return link.request(new_cell_message(headers, payload))


def test_the_worker_answers_and_its_connection_is_kept(worker, tmp_path):
    link = SiteLink(tmp_path)
    assert [sent(link, b"ab").payload for _ in range(3)] == [b"abab"] * 3
    assert len(worker) == 1
    assert sent(link, topic="alive").payload == link.instance


def test_no_site_is_called_by_another_site(worker, tmp_path):
    refused = sent(SiteLink(tmp_path), b"request", origin="south")
    assert refused.get_header(MessageHeaderKey.ERROR) == "only the federation's server may call a site"
    assert not worker


def test_a_worker_that_is_not_there_is_a_sentence(tmp_path):
    refused = sent(SiteLink(tmp_path), b"request")
    assert refused.get_header(MessageHeaderKey.ERROR) == "the site's worker is restarting"


def test_the_worker_is_left_alone_when_no_user_is_connected(worker, tmp_path, monkeypatch):
    """So that it may read its data again."""
    link = SiteLink(tmp_path)
    assert sent(link, b"a").payload == b"aa"
    monkeypatch.setattr(site_link, "IDLE", 0.05)
    threading.Thread(target=link.watch, daemon=True).start()
    wait_until(lambda: not worker, "the connection is still open")
    assert sent(link, b"b").payload == b"bb"
