"""Connecting, rounds and large messages of a real federation on this machine, against bare messages of NVIDIA FLARE.

Three sites and a server as processes of their own, mutual TLS, for each of the two. Both run at once and are measured
in turns, so that a slower minute of the machine slows both. A site's answer is on its disk before it leaves, and a bare
message is not: what the disk takes for three such answers is printed, too.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

SITES, BULK = ("north", "south", "west"), 100_000_000

#: Pairs of blocks of empty calls, calls in a block, and pairs of large calls.
PAIRS, ROUNDS, BULK_PAIRS = 8, 20, 5
STEPS = """
import fedspan as fs


@fs.step
def empty(site):
    return {}


@fs.step
def echo(site, bulk):
    return {"bulk": bulk}
"""
BARE = """
import statistics, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Listener
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.cellnet.utils import new_cell_message


class Server(FLComponent):
    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.SYSTEM_START:
            threading.Thread(target=self.rounds, args=(fl_ctx.get_engine().get_cell(),), daemon=True).start()

    def rounds(self, cell):
        def ask(way, site, data):
            message = new_cell_message({}, data)
            return way.send_request(channel="bare", topic="echo", target=site, request=message, timeout=120.0).payload

        def measured(way, threads, size, rounds):
            data, times = bytes(size), []
            for _ in range(rounds):
                start = time.perf_counter()
                replies = list(threads.map(ask, [way] * len(SITES), SITES, [data] * len(SITES)))
                times.append(time.perf_counter() - start)
                assert all(len(reply) == size for reply in replies)
            return statistics.median(times)

        with ThreadPoolExecutor(len(SITES)) as threads:
            while any(ask(cell, site, b"there?") is None for site in SITES):
                time.sleep(0.5)
            ways = {"frame": cell.core_cell, "stream": cell, "small": cell}
            with Listener(SOCKET) as listener, listener.accept() as user:
                while True:
                    way, size, rounds = user.recv()
                    user.send(measured(ways[way], threads, size, rounds))


class Client(FLComponent):
    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.SYSTEM_START:
            cell = fl_ctx.get_engine().get_cell()
            for way in (cell, cell.core_cell):
                way.register_request_cb(channel="bare", topic="*", cb=self.echo)

    def echo(self, message):
        return new_cell_message({}, bytes(message.payload))
"""

#: Bytes of a signed request without a payload.
SMALL = 3_000


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fedspan-bench-") as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(fs.__file__).parents[1])])
        sys.path.insert(0, str(folder))
        (folder / "bench_steps.py").write_text(STEPS)
        with LocalDeployment(folder / "fedspan", "bench", _owners(folder)) as here:
            here.start()
            start = time.perf_counter()
            with fs.connect(here.kit("alice"), policy=fs.Policy(deadline=120.0)) as fed:
                connect = time.perf_counter() - start
                with _bare(folder) as bare:
                    result = _in_turns(fed, here, bare)
    result = {"connect, s": connect} | result
    for what, value in result.items():
        print(f"{value:8.2f}  {what}")
    print(
        f"({len(SITES)} sites; bare messages go from the server to the sites and back; a ratio is the median "
        f"of those of {PAIRS} pairs of blocks of {ROUNDS} calls, and of {BULK_PAIRS} pairs of large calls)"
    )
    return result


def _in_turns(fed: fs.Federation, here: LocalDeployment, bare: Connection) -> dict[str, float]:
    from bench_steps import echo, empty

    def of_bare(way: str, size: int, rounds: int) -> float:
        bare.send((way, size, rounds))
        return float(bare.recv())

    def timed(step: Callable[..., object], **parameters: object) -> float:
        start = time.perf_counter()
        assert len(fed.ask(step, **parameters).ok) == len(SITES)
        return time.perf_counter() - start

    small = []
    for _ in range(PAIRS):
        ours = statistics.median(timed(empty) for _ in range(ROUNDS))
        small.append((ours, of_bare("small", SMALL, ROUNDS)))
    disk = statistics.median(_synced(here.folder) for _ in range(ROUNDS))
    before, bulk = _memory(here, "VmRSS"), np.zeros(BULK // 8)
    large = [(timed(echo, bulk=bulk), of_bare("frame", BULK, 1), of_bare("stream", BULK, 1)) for _ in range(BULK_PAIRS)]
    memory = (_memory(here, "VmHWM") - before) / BULK
    (ours, plain), (sums, frame, stream) = (map(statistics.median, zip(*kind, strict=True)) for kind in (small, large))
    return {
        "a round of an empty call, ms": ours * 1e3,
        f"the same with bare messages of {SMALL:,} bytes, ms": plain * 1e3,
        "ratio": statistics.median(one / other for one, other in small),
        "of these, until the answers of all sites are on the disk, ms": disk * 1e3,
        "ratio without it": statistics.median((one - disk) / other for one, other in small),
        "100 MB both ways, s": sums,
        "the same with bare messages, in one frame, s": frame,
        "ratio to one frame": statistics.median(one / other for one, other, _ in large),
        "the same with bare messages, as streams, s": stream,
        "ratio to streams": statistics.median(one / other for one, _, other in large),
        "memory of the coordinator above its start, in messages of 100 MB": memory,
    }


def _owners(folder: Path) -> dict[str, Path]:
    tomls = {}
    for name in SITES:
        home = folder / "owners" / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=np.zeros((100, 20)))
        tomls[name] = home / "site.toml"
        tomls[name].write_text(
            f'[site]\nname = "{name}"\nmodules = ["bench_steps"]\n[data]\nfile = "rows.npz"\n'
            '[rules]\nlevel = "trusted"\nsteps = ["bench_steps.echo", "bench_steps.empty"]\n'
        )
    return tomls


def _synced(folder: Path) -> float:
    """Return the seconds until a short entry at the end of a file of each site is on the disk."""

    def append(site: str) -> None:
        with (folder / f"{site}.sync").open("ab") as file:
            file.write(bytes(700))
            file.flush()
            os.fsync(file.fileno())

    with ThreadPoolExecutor(len(SITES)) as threads:
        list(threads.map(append, SITES))  # the threads have started, and the files are there
        start = time.perf_counter()
        list(threads.map(append, SITES))
        return time.perf_counter() - start


def _memory(here: LocalDeployment, field: str) -> float:
    """Return bytes of memory of the coordinator's process."""
    lines = Path(f"/proc/{here.processes['coordinator'].pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


@contextmanager
def _bare(folder: Path) -> Iterator[Connection]:
    """Run NVIDIA FLARE's own processes with a component each that sends and returns arrays, as fast as it goes."""
    socket = str(folder / "bare.socket")
    (folder / "bench_bare.py").write_text(f"SITES, SOCKET = {SITES}, {socket!r}\n{BARE}")
    here = LocalDeployment(folder / "bare", "bench", dict.fromkeys(SITES, folder))
    processes = []
    try:
        for name in ("coordinator", *SITES):
            kit = here.kit(name)
            resources = json.loads((kit / "local" / "resources.json").read_text())
            side = "server" if name == "coordinator" else "client"
            kept = [one for one in resources["components"] if not one["id"].startswith("fedspan")]
            resources["components"] = [*kept, {"id": "bare", "path": f"bench_bare.{side.title()}", "args": {}}]
            (kit / "local" / "resources.json").write_text(json.dumps(resources))
            command = [sys.executable, "-m", f"nvflare.private.fed.app.{side}.{side}_train", "-m", str(kit)]
            command += ["-s", f"fed_{side}.json", "--set", "secure_train=true", "org=fedspan", "config_folder=config"]
            command += [f"uid={name}"] * (side == "client")
            quiet = subprocess.DEVNULL
            processes.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True))
        until = time.monotonic() + 240.0
        while not Path(socket).exists() and time.monotonic() < until:
            time.sleep(0.2)
        with Client(socket) as connection:
            yield connection
    finally:
        for process in processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()
        shutil.rmtree(folder / "bare", ignore_errors=True)
