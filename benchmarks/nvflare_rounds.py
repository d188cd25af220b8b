"""Milliseconds per round of a real federation on this machine, against bare messages of NVIDIA FLARE.

Three sites and a server as processes of their own, mutual TLS; 1000 x 20 float64 to each site and back in each round.
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

SITES, ROUNDS, WANTED = ("north", "south", "west"), 100, 60.0
STEPS = """
import fedspan as fs


@fs.step
def echo(site, bulk):
    return {"bulk": bulk + 1.0}
"""
BARE = """
import json, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.cellnet.utils import new_cell_message


class Server(FLComponent):
    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.SYSTEM_START:
            threading.Thread(target=self.rounds, args=(fl_ctx.get_engine().get_cell(),), daemon=True).start()

    def rounds(self, cell):
        def ask(site, data):
            message = new_cell_message({}, data)
            reply = cell.send_request(channel="bare", topic="echo", target=site, request=message, timeout=30.0)
            return np.frombuffer(reply.payload).reshape(1000, 20) if reply.payload else None

        with ThreadPoolExecutor(len(SITES)) as threads:
            while any(ask(site, np.zeros((1000, 20)).tobytes()) is None for site in SITES):
                time.sleep(0.5)
            bulk, times = np.zeros((1000, 20)), []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                replies = list(threads.map(ask, SITES, [bulk.tobytes()] * len(SITES)))
                bulk = sum(replies) / len(replies)
                times.append(time.perf_counter() - start)
        assert bulk[0, 0] == ROUNDS
        Path(OUT).write_text(json.dumps(times))


class Client(FLComponent):
    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.SYSTEM_START:
            fl_ctx.get_engine().get_cell().register_request_cb(channel="bare", topic="*", cb=self.echo)

    def echo(self, message):
        return new_cell_message({}, (np.frombuffer(message.payload) + 1.0).tobytes())
"""


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fedspan-bench-") as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(fs.__file__).parents[1])])
        sys.path.insert(0, str(folder))
        (folder / "bench_steps.py").write_text(STEPS)
        result = {"through fs.connect": _with_fedspan(folder)}
        result["bare messages of NVIDIA FLARE, from server to sites"] = _bare(folder)
    for what, value in result.items():
        print(f"{value:8.1f}  {what}, ms per round")
    print(f"(at most {WANTED:g} is wanted through fs.connect; {len(SITES)} sites, median of {ROUNDS} rounds)")
    return result


def _with_fedspan(folder: Path) -> float:
    tomls = {}
    for name in SITES:
        home = folder / "owners" / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=np.zeros((100, 20)))
        tomls[name] = home / "site.toml"
        tomls[name].write_text(
            f'[site]\nname = "{name}"\nmodules = ["bench_steps"]\n[data]\nfile = "rows.npz"\n'
            '[rules]\nlevel = "trusted"\nsteps = ["bench_steps.echo"]\n'
        )
    times = []
    with LocalDeployment(folder / "fedspan", "bench", tomls) as here:
        here.start()
        from bench_steps import echo

        with fs.connect(here.kit("alice")) as fed:
            bulk = np.zeros((1000, 20))
            for _ in range(ROUNDS):
                start = time.perf_counter()
                replies = fed.ask(echo, bulk=bulk)
                bulk = replies.stack("bulk").mean(axis=0)
                times.append(time.perf_counter() - start)
    assert bulk[0, 0] == ROUNDS
    return statistics.median(times) * 1e3


def _bare(folder: Path) -> float:
    """Run NVIDIA FLARE's own processes with a component each that sends and returns arrays, as fast as it goes."""
    out = folder / "times.json"
    (folder / "bench_bare.py").write_text(f"SITES, ROUNDS, OUT = {SITES}, {ROUNDS}, {str(out)!r}\n{BARE}")
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
        until = time.monotonic() + 120.0
        while not out.exists() and time.monotonic() < until:
            time.sleep(0.2)
        return statistics.median(json.loads(out.read_text())) * 1e3
    finally:
        for process in processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()
        shutil.rmtree(folder / "bare", ignore_errors=True)
