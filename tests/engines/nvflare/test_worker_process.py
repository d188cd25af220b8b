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


def test_a_worker_restarts_in_the_folder_in_which_its_site_was_started(kit, tmp_path, monkeypatch):
    """NVIDIA FLARE enters another one meanwhile, and the owner's own steps are found from here alone."""
    shown, restarted = [], threading.Event()

    def report(line):
        shown.append(line)
        if sum("20 rows" in line for line in shown) == 2:
            restarted.set()

    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.report", report)
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.FOLDER_AT_START", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
    (tmp_path / "own_steps_here.py").write_text("import fedspan as fs\n\n\n@fs.step\ndef one(site):\n    return {}\n")
    config = tmp_path / "site.toml"
    config.write_text(config.read_text().replace("[data]", 'modules = ["own_steps_here"]\n[data]'))
    monkeypatch.chdir(kit)
    supervisor = Supervisor(kit, config)
    supervisor.wait_until_ready()
    supervisor._process.kill()
    assert restarted.wait(300), shown
    supervisor._start = threading.Event().wait  # no third one, in a thread that ends with the tests
    supervisor._process.kill()


def test_a_worker_that_cannot_start_again_is_a_sentence_on_the_console(tmp_path, monkeypatch):
    shown, thrice = [], threading.Event()
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.report", shown.append)
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.PAUSE", 0.0)

    class Supervised(Supervisor):
        started = 0

        def _start(self):
            self.started += 1
            if self.started > 3:
                thrice.set()
                threading.Event().wait()  # for good, in a thread that ends with the tests
            (tmp_path / "worker.log").write_text("Traceback\nImportError: no module\n")
            return subprocess.Popen([sys.executable, "-c", "exit(1)"], stdout=subprocess.PIPE, text=True)

    threading.Thread(target=Supervised(tmp_path, tmp_path / "site.toml")._watch, daemon=True).start()
    assert thrice.wait(300)
    assert shown.count("the worker died (1) and restarts") == 3
    assert shown.count("ImportError: no module") == 1


def test_a_worker_that_reads_for_long_is_a_sentence_on_the_console(tmp_path, monkeypatch):
    reading = threading.Event()
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.SILENT", 0.0)
    monkeypatch.setattr("fedspan.engines.nvflare.site.worker_process.report", lambda line: reading.set())

    class Supervised(Supervisor):
        def _start(self):
            lines = "import sys; sys.stdin.read(); print('ready', flush=True)"
            pipe = subprocess.PIPE
            return subprocess.Popen([sys.executable, "-c", lines], stdin=pipe, stdout=pipe, text=True)

    supervised = Supervised(tmp_path, tmp_path / "site.toml")
    first = []
    waiting = threading.Thread(target=lambda: first.append(supervised._first_line()))
    waiting.start()
    assert reading.wait(300)
    assert not first
    supervised._process.stdin.close()
    waiting.join()
    assert first == ["ready"]
    supervised._process.stdout.close()
    supervised._process.wait()
