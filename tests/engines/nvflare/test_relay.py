"""The relay on the server: one call to several sites."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare.server.relay import ENDED, RelayCall


def test_a_call_has_its_result_when_each_site_answered_failed_or_was_given_up():
    held = threading.Event()

    def call(site, request):
        if site == "slow":
            held.wait(10)
        if site == "broken":
            raise PermissionError("no")
        return request + site.encode()

    sent = RelayCall({"good": b"1", "broken": b"2", "slow": b"3"})
    with ThreadPoolExecutor(3) as threads:
        sent.start(threads, call)
        assert not sent.result.done()
        sent.give_up(["slow"])
        result = sent.result.result(timeout=5)
        held.set()
    assert result == {"answers": {"good": b"1good"}, "lost": {"broken": "PermissionError: no", "slow": ENDED}}


def test_a_late_answer_of_a_site_that_was_given_up_changes_nothing():
    sent, held = RelayCall({"slow": b""}), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        sent.start(threads, lambda site, request: held.wait(10) and b"late")
        sent.give_up(["slow"])
        held.set()
    assert sent.result.result(timeout=5) == {"answers": {}, "lost": {"slow": ENDED}}
