"""The owner's page in a real browser: approve, refuse, stop, search and export, pause."""

from __future__ import annotations

import json
import time

import pytest

from fedspan.console import site_view
from fedspan.console.site_view import SiteView
from fedspan.privacy import Ledger
from tests.owner.owner_desk import SUMS
from tests.report.chromium import PATIENCE, Chromium, find_chromium

from .owned_example import Clinic, example_plan

RUN = "FedStandardScaler#0 token"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: chromium, chromium-browser or google-chrome"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Chromium(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture
def clinic(tmp_path):
    made = Clinic(tmp_path / "site")
    yield made
    made.close()


def press(browser, words, within="document"):
    """Press the button with these words, and wait for the page that follows."""
    browser._events.clear()
    found = f"[...{within}.querySelectorAll('button')].find(one => one.textContent.startsWith({json.dumps(words)}))"
    browser.run(f"{found}.click()")
    browser.wait_for("Page.loadEventFired")


def exported(browser, folder):
    """Press the link for the export, and return the lines of the file that the browser saves."""
    folder.mkdir()
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.run("document.getElementById('export').click()")
    until = time.monotonic() + PATIENCE
    while not list(folder.glob("*.jsonl")):
        assert time.monotonic() < until, "nothing was saved"
        time.sleep(0.05)
    return [json.loads(line) for line in (folder / "audit-a.jsonl").read_text().splitlines()]


def first_call(clinic, plan):
    """Let the first step of an approved study run; return it."""
    step = plan.runs[0].steps[0]
    payload = {"widest": json.loads(step.parameters["widest"][0])}
    reply = clinic.desk.ask(step.step, run=RUN, study="ticket-1", payload=payload, how=step.how)
    assert not isinstance(reply, str), reply
    return step


def text(browser):
    return browser.run("document.body.innerText")


def test_an_owner_approves_refuses_stops_and_exports(browser, clinic, tmp_path):
    plan = example_plan()
    clinic.propose("ticket-1", plan=plan)
    clinic.propose("ticket-2", "bob", example_plan("Another one", 1))
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        shown = text(browser)
        for words in ("waiting for your approval", "alice", "Which patients are alike?", "FedStandardScaler", "FedPCA"):
            assert words in shown
        assert "sums over your rows" in shown
        assert "no noise: no budget is spent" in shown
        assert f"at most {sum(run.calls for run in plan.runs)}" in shown.replace("\u202f", "")
        assert browser.complaints == []

        press(browser, "Refuse", "document.getElementById('study-ticket-2')")
        assert "Please give a reason" in text(browser)  # and nothing was decided
        assert clinic.decisions.proposals["ticket-2"].state == "waiting"
        browser.open(server.address, width=1200)
        browser.run("document.querySelector('#study-ticket-2 [name=why]').value = 'no ethics vote'")
        press(browser, "Refuse", "document.getElementById('study-ticket-2')")
        assert "refused: no ethics vote" in text(browser)
        assert clinic.decisions.proposals["ticket-2"].why == "no ethics vote"

        press(browser, "Approve once")
        assert clinic.decisions.proposals["ticket-1"].state == "once"
        run, step = RUN, first_call(clinic, plan)
        browser.open(server.address, width=1200)
        assert "1 of at most" in text(browser)
        browser.run("document.querySelector('.study.run [name=why]').value = 'enough'")
        press(browser, "Stop this run")
        assert clinic.decisions.stopped[run] == "enough"
        assert "has stopped this run: enough" in clinic.desk.ask(
            step.step, 1, run=run, study="ticket-1", payload={"widest": 719}, after=0
        )

        browser.open(server.address + "log", width=1200)
        assert step.step in text(browser)
        browser.run("document.querySelector('[name=search]').value = 'ALICE refused'")
        press(browser, "Search")
        assert "1 line," in text(browser)
        assert [line["outcome"] for line in exported(browser, tmp_path / "some")] == ["refused"]
        browser.open(server.address + "log", width=1200)
        assert len(exported(browser, tmp_path / "all")) == len(clinic.desk.lines())


def test_a_run_that_was_interrupted_is_not_shown_as_running(browser, clinic, monkeypatch):
    """It may be resumed, so the owner can still stop it."""
    run, plan = RUN, example_plan()
    clinic.propose(plan=plan)
    clinic.desk.ask(SUMS, run="FedPCA#0 other")  # refused: not one of this site's runs
    clinic.decisions.decide("ticket-1", "once")
    first_call(clinic, plan)
    assert [one.run for one in SiteView(clinic.config).running] == [run]
    monkeypatch.setattr(site_view, "SILENT", -1.0)
    view = SiteView(clinic.config)
    assert (view.running, [one.run for one in view.interrupted]) == ([], [run])
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        assert "None." in browser.run("document.getElementById('running').innerText")
        press(browser, "Stop this run", "document.getElementById('interrupted')")
        assert run in clinic.decisions.stopped
        assert "Interrupted runs" not in text(browser)


def test_a_standing_approval_is_withdrawn(browser, clinic):
    clinic.propose()
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        press(browser, "Approve as long as nothing changes")
        assert clinic.propose("ticket-2").approved
        press(browser, "Withdraw")
        assert not clinic.propose("ticket-3").approved


def test_pause_and_resume(browser, clinic):
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        browser.run("document.querySelector('#pause [name=why]').value = 'backup'")
        press(browser, "Pause")
        assert "paused since" in text(browser)
        assert "paused it: backup" in clinic.desk.ask(SUMS)
        press(browser, "Resume")
        assert clinic.decisions.paused is None


def test_data_rules_and_budget_are_shown(browser, clinic):
    ledger = clinic.desk.owned.ledger
    from fedspan.federation.site.noise_query import NoiseQuery

    for number in range(3):
        ledger.key(NoiseQuery("FedPCA#0 x", "pca.noisy_gram", bytes([number]) * 16), mu2=0.01)
    assert isinstance(ledger, Ledger)
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        browser.open(server.address + "data", width=1200)
        shown = text(browser)
        for words in ("dose", "number", "40", "no study runs before you have approved it", "secure sums"):
            assert words in shown
        browser.open(server.address + "budget", width=1200)
        assert "pca.noisy_gram" in text(browser)
        assert browser.run("document.querySelectorAll('svg .line').length") == 2


def test_hostile_names_stay_text(browser, clinic):
    plan = example_plan("<script>document.title='owned'</script><img src=x onerror=1>")
    clinic.propose("ticket-1", plan=plan)
    clinic.desk.ask("<b>step</b>", run='r"><form action=http://evil.example>')
    with clinic.served() as server:
        browser.open(server.link(), width=1200)
        browser.open(server.address + "log", width=1200)
        assert browser.run("document.querySelectorAll('main b, main img, form[action*=evil]').length") == 0
        browser.open(server.address, width=1200)
        assert browser.run("document.title") == "Site a"
        assert browser.run("document.querySelectorAll('img, script').length") == 0


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (1200, True)])
def test_nothing_sticks_out(browser, clinic, tmp_path, width, dark):
    clinic.propose()
    with clinic.served() as server:
        browser.open(server.link(), width=width, dark=dark)
        for path in ("", "data", "log", "budget"):
            browser.open(server.address + path, width=width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), path
            browser.screenshot(tmp_path / f"{path or 'studies'}.png")
        assert browser.complaints == []
