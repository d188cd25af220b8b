"""Connecting, rounds and large messages of a real federation on this machine, against bare messages of NVIDIA FLARE.

Three sites and a server as processes of their own, mutual TLS.
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
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

SITES, ROUNDS, BULK = ("north", "south", "west"), 60, 100_000_000
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
import json, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
            return sorted(times)[rounds // 2]

        with ThreadPoolExecutor(len(SITES)) as threads:
            while any(ask(cell, site, b"there?") is None for site in SITES):
                time.sleep(0.5)
            found = {"small": measured(cell, threads, SMALL, ROUNDS)}
            found["inline"] = measured(cell.core_cell, threads, BULK, 1)
            found["stream"] = measured(cell, threads, BULK, 1)
        Path(OUT + ".new").write_text(json.dumps(found))
        Path(OUT + ".new").rename(OUT)


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
        bare = _bare(folder)
        ours, memory = _with_fedspan(folder)
    result = {
        "connect, s": ours["connect"],
        "a round of an empty call, ms": ours["small"] * 1e3,
        f"the same with bare messages of {SMALL:,} bytes, ms": bare["small"] * 1e3,
        "100 MB both ways, s": ours["bulk"],
        "the same with bare messages, in one frame, s": bare["inline"],
        "the same with bare messages, as streams, s": bare["stream"],
        "memory of the coordinator above its start, in messages of 100 MB": memory,
    }
    for what, value in result.items():
        print(f"{value:8.2f}  {what}")
    print(f"({len(SITES)} sites; bare messages go from the server to the sites and back; median of {ROUNDS} rounds)")
    return result


def _with_fedspan(folder: Path) -> tuple[dict[str, float], float]:
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
    found, times = {}, []
    with LocalDeployment(folder / "fedspan", "bench", tomls) as here:
        here.start()
        from bench_steps import echo, empty

        start = time.perf_counter()
        with fs.connect(here.kit("alice"), policy=fs.Policy(deadline=120.0)) as fed:
            found["connect"] = time.perf_counter() - start
            for _ in range(ROUNDS):
                start = time.perf_counter()
                fed.ask(empty)
                times.append(time.perf_counter() - start)
            found["small"] = statistics.median(times)
            before, bulk = _memory(here, "VmRSS"), np.zeros(BULK // 8)
            start = time.perf_counter()
            assert len(fed.ask(echo, bulk=bulk).ok) == len(SITES)
            found["bulk"] = time.perf_counter() - start
            return found, (_memory(here, "VmHWM") - before) / BULK


def _memory(here: LocalDeployment, field: str) -> float:
    """Return bytes of memory of the coordinator's process."""
    lines = Path(f"/proc/{here.processes['coordinator'].pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _bare(folder: Path) -> dict[str, float]:
    """Run NVIDIA FLARE's own processes with a component each that sends and returns arrays, as fast as it goes."""
    out = folder / "times.json"
    (folder / "bench_bare.py").write_text(
        f"SITES, ROUNDS, SMALL, BULK, OUT = {SITES}, {ROUNDS}, {SMALL}, {BULK}, {str(out)!r}\n{BARE}"
    )
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
        while not out.exists() and time.monotonic() < until:
            time.sleep(0.2)
        return dict(json.loads(out.read_text()))
    finally:
        for process in processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()
        shutil.rmtree(folder / "bare", ignore_errors=True)
