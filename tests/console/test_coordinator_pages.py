"""The coordinator's page: sites, versions, the queue, progress, failures by kind, reports; nothing can be changed."""

from __future__ import annotations

import json
import time
from threading import Thread

import pytest

from fedspan.cli import main
from fedspan.cli.study.progress_file import ProgressFile
from fedspan.console.coordinator_console import coordinator_server
from fedspan.engines.local.embedded import federate
from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.setup.kit import FederationPlan
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.federation import FaultPlan
from tests.report.chromium import Chromium, find_chromium

from .test_page_server import send

pytestmark = pytest.mark.slow


@pytest.fixture
def kit(tmp_path):
    plan = FederationPlan("clinics", "127.0.0.1", 8002, ("north", "south"), {"alice": "analyst"})
    provision(plan, tmp_path / "kits")
    kit = tmp_path / "kits" / COORDINATOR
    about = {"since": time.time(), "who": "alice", "why": ""}
    studies = {
        "0123456789ab": about | {"title": "running one", "state": "running"},
        "0123456789ac": about | {"title": "failed one", "state": "failed", "why": "no site can be reached"},
        "0123456789ad": about | {"title": "finished one", "state": "done"},
        "0123456789ae": about | {"title": "<b>queued</b>", "state": "waiting"},
    }
    for name, values in studies.items():
        folder = kit / "studies" / name
        (folder / "results").mkdir(parents=True)
        (folder / "about.json").write_text(json.dumps(values | {"study": name}))
        (folder / "log.txt").write_text(f"the log of {name}\n")
    (kit / "studies" / "0123456789ad" / "results" / "report.html").write_text("<h1>The report</h1>")
    progress = {"run": "FedPCA", "round": 3, "rounds": 40, "calls": 9, "seconds_left": 75.0}
    progress |= {"failures": {"late": 2}, "waiting": ["south"]}
    (kit / "studies" / "0123456789ab" / "progress.json").write_text(json.dumps(progress))
    online = {"when": time.time(), "sites": ["north", "south"], "online": {"north": "0.0.7"}, "disabled": {}}
    (kit / "online.json").write_text(json.dumps(online))
    (kit / "log.txt").write_text("the coordinator's log\n")
    return kit


@pytest.fixture
def server(kit):
    made = coordinator_server(kit)
    Thread(target=made.serve, daemon=True).start()
    yield made
    made.close()


def page(server, path):
    cookie = server.log_in(token=server._token)
    return send(server, "GET", path, Cookie=f"{server.cookie}={cookie}")


def test_sites_versions_queue_and_progress(server):
    status, _, text = page(server, "/")
    assert status == 200
    for words in ("north", "0.0.7 (here", "offline", "FedPCA, round 3 of at most 40, 9 calls, at most 1 min 15 s left"):
        assert words in text
    for words in ("waits for south", "no site can be reached", "&lt;b&gt;queued", "late", "1 of 2"):
        assert words in text
    assert '<a href="/report?study=0123456789ad">' in text
    assert '<a href="/report?study=0123456789ab">' not in text


def test_reports_and_logs(server):
    status, headers, text = page(server, "/report?study=0123456789ad")
    assert (status, text) == (200, "<h1>The report</h1>")
    assert headers["Content-Security-Policy"].startswith("sandbox")
    assert page(server, "/report?study=0123456789ab")[0] == 400
    assert page(server, "/report?study=../../startup")[0] == 400
    assert "the log of 0123456789ab" in page(server, "/log?study=0123456789ab")[2]
    assert "the coordinator&#x27;s log" in page(server, "/log")[2]


def test_nothing_can_be_changed_or_seen_without_a_token(server):
    for path in ("/", "/report?study=0123456789ad", "/log"):
        status, _, text = send(server, "GET", path)
        assert status == 401
        assert "north" not in text
    assert not server.pages.changes


def test_an_old_state_is_not_shown_as_true(server, kit):
    state = json.loads((kit / "online.json").read_text())
    (kit / "online.json").write_text(json.dumps(state | {"when": time.time() - 3600}))
    assert "does not run" in page(server, "/")[2]


def test_figures(server):
    token = server._metrics_token
    _, _, text = send(server, "GET", "/metrics", Authorization=f"Bearer {token}")
    assert 'fedspan_coordinator_studies{state="running"} 1' in text
    assert "fedspan_coordinator_sites_online 1" in text
    assert 'fedspan_coordinator_failures{kind="late"} 2' in text
    assert "alice" not in text


def test_logs_by_command(kit, capsys):
    assert main(["logs", str(kit)]) == 0
    assert "the coordinator's log" in capsys.readouterr().out
    assert main(["logs", str(kit), "0123456789ac", "--lines", "1"]) == 0
    assert capsys.readouterr().out == "the log of 0123456789ac\n"
    assert main(["logs", str(kit), "none"]) == 2
    assert main(["logs", str(kit.parent / "alice")]) == 2


def test_progress_of_a_study_is_written(tmp_path):
    import numpy as np

    import fedspan as fs

    file = tmp_path / "progress.json"
    fed = federate(np.random.default_rng(0).normal(size=(60, 3)), sites=np.arange(60) % 6)
    fed = fed.with_faults(FaultPlan(seed=0, drop=0.02))
    fed.observe(ProgressFile(file))
    model = fs.FedPCA(1, solver="fedpg", max_rounds=12).fit(fed)
    progress = json.loads(file.read_text())
    assert progress["run"] == "FedPCA"
    assert progress["rounds"] == 12
    assert progress["calls"] == len(model.run_.calls)
    assert sum(progress["failures"].values()) == len(model.run_.failures)


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_in_a_browser(server, tmp_path, width, dark):
    browser = Chromium(tmp_path / "chromium")
    try:
        browser.open(server.link(), width=width, dark=dark)
        assert "Federation clinics" in browser.run("document.body.innerText")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.screenshot(tmp_path / "page.png")
        assert browser.complaints == []
    finally:
        browser.close()
