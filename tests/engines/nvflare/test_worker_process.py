"""Notices of a site's worker: from its own process to the console of ``fedspan site start``."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment
from fedspan.engines.nvflare.site.worker_process import Supervisor, socket_path
from fedspan.engines.remote.site.byte_link import ByteLink, socket_address


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 20)
    (tmp_path / "site.toml").write_text('[site]\nname = "north"\n[data]\nfile = "rows.csv"\n')
    return LocalDeployment(tmp_path, "lab", {"north": tmp_path / "site.toml"}).kit("north")  # nothing is started


def test_a_worker_reports_that_it_is_closed_and_open_again(kit, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    command = [
        sys.executable,
        "-m",
        "fedspan.engines.nvflare.site.worker_process",
        str(kit),
        str(tmp_path / "site.toml"),
    ]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert worker.stdout.readline().startswith("north: 20 rows, 2 columns")

        def notice():
            for _ in range(100):  # the worker may not have noticed yet that the last link is closed
                with contextlib.closing(ByteLink.to(socket_path(kit))):
                    if select.select([worker.stdout], [], [], 0.2)[0]:
                        return worker.stdout.readline()
            raise AssertionError("the worker reports nothing")

        (tmp_path / "rows.csv").unlink()
        assert "closed, nothing is answered: " in (line := notice())
        assert "rows.csv does not exist" in line
        (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 30)
        assert notice().startswith("open again: north: 30 rows")
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()


def test_the_console_shows_the_notices_of_a_worker(tmp_path, monkeypatch):
    shown, twice = [], threading.Event()
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.report", shown.append)

    class Supervised(Supervisor):
        started = 0

        def _start(self):
            self.started += 1
            if self.started > 1:
                twice.set()
                threading.Event().wait()  # for good, in a thread that ends with the tests
            lines = "print('ready', flush=True); print('closed, because', flush=True)"
            return subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True)

    supervised = Supervised(tmp_path, tmp_path / "site.toml")
    line = supervised._first_line()
    assert line == "ready"
    threading.Thread(target=supervised._watch, daemon=True).start()
    assert twice.wait(300)
    assert shown == ["closed, because", "the worker died (0) and restarts"]


@pytest.mark.parametrize("proc", [True, False])
def test_a_deep_kit_has_a_socket_that_is_reached_from_any_folder(tmp_path, monkeypatch, proc):
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    path = socket_path(deep)
    if not proc:  # as on macOS
        exists = Path.is_dir
        monkeypatch.setattr(Path, "is_dir", lambda self: str(self) != "/proc/self/fd" and exists(self))
    monkeypatch.chdir(deep)
    with socket.socket(socket.AF_UNIX) as listener:
        with socket_address(path) as address:
            listener.bind(address)
        listener.listen()
        for folder in (deep.parent, deep):  # NVIDIA FLARE changes the folder of a site's process
            monkeypatch.chdir(folder)
            ByteLink.to(path).close()
    assert path.is_socket()
