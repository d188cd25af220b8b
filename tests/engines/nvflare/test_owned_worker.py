"""A site that runs for days: when data and the owner's file are read again, and what it answers if they can't be."""

from __future__ import annotations

import json
import os
import time

import pytest

import fedspan as fs
from fedspan.durable import append_file
from fedspan.engines.nvflare.site import owned_worker
from fedspan.engines.nvflare.site.owned_worker import OwnedWorker
from fedspan.engines.remote.messages.envelope import Sealed, open_sealed
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.request_head import call_head
from fedspan.errors import InputError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.steps import find_step
from fedspan.wire import decode
from tests.engines.remote.people import authority, identity, member_list, user, write_kit
from tests.owner.site_files import example_table, site_writer

CLOSED = "this site is closed until its data and its owner's file can be read again"


@pytest.fixture
def table():
    return example_table()


@pytest.fixture
def write_site(tmp_path, table):
    return site_writer(tmp_path, table)


@pytest.fixture
def open_site(write_site, tmp_path, monkeypatch):
    """Start the worker of a site, with its notices for the owner in `notices`."""
    monkeypatch.setattr(owned_worker.Identity, "from_kit", lambda kit: identity("clinic"))
    monkeypatch.setattr(owned_worker.Authority, "from_kit", lambda kit: authority(["clinic"]))
    monkeypatch.setattr(owned_worker, "PAUSE", 0.0)
    (tmp_path / "kit").mkdir()
    started = []

    def start(data='file = "rows.csv"\ncolumns = ["age", "weight"]', schema=None, **more):
        write_kit(tmp_path / "kit", "site", "clinic", members=member_list(sites=["clinic"], schema=schema))
        path = write_site(data, **more)
        path.chmod(0o600)
        worker = OwnedWorker(tmp_path / "kit", path, notices.append)
        started.append(worker)
        return worker

    notices: list[str] = []
    start.notices = notices
    yield start
    for worker in started:
        worker.close()


def ask(worker, run="r", number=0, kind="call"):
    """Request sums as alice; return the number of rows, or why there is none."""
    call = Call(run, number, 5, find_step("sums.sums"), {}, ("clinic",))
    fields, parts = call_head(call, ["clinic"], {"clinic": number - 1}, fs.Policy(deadline=60.0), 1)
    head = {"kind": kind, "federation": "clinics", "version": fedspan_version(), "run": run, "serial": time.time_ns()}
    request = Sealed(user(), "request", head | fields, parts).to("clinic")
    found = open_sealed(worker.answer(request), authority(), "response", "", 2**28)
    if kind == "hello":
        return json.loads(bytes(found.parts["owner"])) if "owner" in found.parts else found.head["why"]
    if "reply" not in found.parts:
        return found.head["why"]
    return int(decode(found.parts["reply"], 2**20)["n"])


def test_rows_stay_within_a_run_and_are_read_again_when_the_next_begins(open_site, table, tmp_path):
    worker = open_site()
    assert ask(worker) == 30
    table.head(12).to_csv(tmp_path / "rows.csv", index=False)
    assert ask(worker, number=1) == 30
    worker.refresh()
    assert ask(worker, run="next") == 12
    assert "no longer those that the run began with" in ask(worker, number=2)
    assert open_site.notices == [f"read again: {worker.in_words()}"]
    worker.refresh()
    assert len(open_site.notices) == 1  # nothing was written to since


def test_deleted_rows_are_not_served_until_they_are_back(open_site, table, tmp_path):
    worker = open_site()
    assert ask(worker) == 30
    (tmp_path / "rows.csv").unlink()
    assert CLOSED in ask(worker, number=1)  # in the middle of a run
    worker.refresh()
    assert CLOSED in ask(worker)
    assert CLOSED in ask(worker, kind="hello")
    assert str(tmp_path) not in ask(worker)  # the reason is for the owner alone
    assert len(open_site.notices) == 1  # once, not at every attempt
    assert "closed, nothing is answered: " in open_site.notices[0]
    assert "rows.csv does not exist" in open_site.notices[0]
    table.head(15).to_csv(tmp_path / "rows.csv", index=False)
    assert ask(worker, run="next") == 15
    assert open_site.notices[1].startswith("open again: clinic: 15 rows")


def test_rows_that_no_longer_fit_close_the_site(open_site, table, tmp_path):
    worker = open_site('file = "rows.csv"\ncolumns = ["age"]\ntask = "ward"')
    table["ward"] = None
    table.to_csv(tmp_path / "rows.csv", index=False)
    for _ in range(2):
        worker.refresh()
        assert CLOSED in ask(worker)
    assert "the task, is missing" in open_site.notices[0]


def test_a_query_runs_again_for_every_run(open_site, table, tmp_path):
    import sqlite3

    def write(rows):
        with sqlite3.connect(tmp_path / "rows.db") as database:
            table.head(rows).to_sql("rows", database, index=False, if_exists="replace")
        database.close()

    write(30)
    worker = open_site('url = "sqlite:///rows.db"\nquery = "SELECT age, dose FROM rows"')
    write(20)
    assert ask(worker) == 30
    worker.refresh()
    assert ask(worker, run="next") == 20
    (tmp_path / "rows.db").unlink()
    assert CLOSED in ask(worker, run="next", number=1)
    (tmp_path / "rows.db").write_text("no database")
    worker.refresh()
    assert CLOSED in ask(worker, run="next", number=1)
    (tmp_path / "rows.db").unlink()
    write(11)
    assert ask(worker, run="third") == 11


def test_stricter_rules_count_at_once_and_a_run_continues_under_them(open_site, write_site):
    worker = open_site()
    assert ask(worker) == 30
    write_site(rules="rounds_per_day = 100")
    assert ask(worker, number=1) == 30  # the rows are the same
    write_site(rules="users = []")
    assert "does not list 'alice'" in ask(worker, number=2)
    write_site()
    assert ask(worker, number=2) == 30


def test_a_file_that_is_broken_closes_the_site_until_it_is_repaired(open_site, write_site, tmp_path):
    worker = open_site()
    for text in ("[rules", '[site]\nname = "another"\n[data]\nfile = "rows.csv"\n[rules]\nlevel = "trusted"\n', None):
        if text is None:
            (tmp_path / "site.toml").unlink()
        else:
            (tmp_path / "site.toml").write_text(text)
        assert CLOSED in ask(worker)
    assert [notice.partition(": ")[0] for notice in open_site.notices] == ["closed, nothing is answered"] * 3
    assert "is not valid TOML" in open_site.notices[0]
    assert "the kit is that of 'clinic'" in open_site.notices[1]
    assert "No such file" in open_site.notices[2]
    write_site()
    assert ask(worker) == 30


def test_the_file_is_not_read_for_nothing(open_site, monkeypatch):
    worker = open_site()
    monkeypatch.setattr(owned_worker, "read_owned_site", None)
    assert ask(worker) == 30
    worker.refresh()
    assert ask(worker, number=1) == 30
    os.utime(worker._config, ns=(1, 1))
    with pytest.raises(TypeError):
        ask(worker, number=2)


def test_a_site_keeps_to_the_schema_of_its_kit(open_site, table, tmp_path):
    worker = open_site(schema={"age": "number", "weight": "number"})
    assert ask(worker, kind="hello")["columns"] == {"age": "number", "weight": "number"}
    table["weight"] = "heavy"
    table.to_csv(tmp_path / "rows.csv", index=False)
    worker.refresh()
    assert CLOSED in ask(worker)
    assert "column 'weight' holds text, and the federation's schema says number" in open_site.notices[0]
    worker.close()
    with pytest.raises(InputError, match="column 'weight' is not in the federation's schema"):
        open_site(schema={"age": "number"})


def test_a_full_disk_is_on_the_owners_screen_and_runs_go_on_when_it_has_room(open_site, monkeypatch):
    worker, write = open_site(), append_file._write

    def full(descriptor, parts, at):
        raise OSError(28, "No space left on device")

    assert ask(worker) == 30
    monkeypatch.setattr(append_file, "_write", full)
    for _ in range(3):
        assert "can't be written: No space left on device" in ask(worker, number=1)
    assert len(open_site.notices) == 1
    assert open_site.notices[0].endswith("No space left on device; the site needs room: free space, and runs go on")
    monkeypatch.setattr(append_file, "_write", write)
    assert ask(worker, number=1) == 30
