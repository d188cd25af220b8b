"""Milliseconds per round of a real federation on this machine, against a bare NVIDIA FLARE job that does the same.

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
from fedspan.engines.nvflare.client.user_session import UserSession, write_relay_job
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

SITES, ROUNDS, WANTED = ("north", "south", "west"), 100, 60.0
STEPS = """
import fedspan as fs


@fs.step
def echo(site, bulk):
    return {"bulk": bulk + 1.0}
"""
BARE = """
import json, time
from pathlib import Path
import numpy as np
from nvflare.collab import collab


class Server:
    @collab.main
    def main(self):
        bulk, times = np.zeros((1000, 20)), []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            replies = dict(collab.clients(timeout=30.0).echo(bulk))
            bulk = sum(replies[name] for name in sorted(replies)) / len(replies)
            times.append(time.perf_counter() - start)
        assert bulk[0, 0] == ROUNDS
        Path(OUT).write_text(json.dumps(times))


class Client:
    @collab.publish
    def echo(self, bulk):
        return bulk + 1.0
"""


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fedspan-bench-") as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(fs.__file__).parents[1])])
        sys.path.insert(0, str(folder))
        (folder / "bench_steps.py").write_text(STEPS)
        result = {"through fs.connect": _with_fedspan(folder)}
        result["bare NVIDIA FLARE job"] = _bare(folder)
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
    """Run NVIDIA FLARE's own processes and a job of two classes, arrays inline, as fast as it goes."""
    out = folder / "times.json"
    (folder / "bench_bare.py").write_text(f"ROUNDS, OUT = {ROUNDS}, {str(out)!r}\n{BARE}")
    here = LocalDeployment(folder / "bare", "bench", dict.fromkeys(SITES, folder))
    processes = []
    try:
        for name in ("coordinator", *SITES):
            kit = here.kit(name)
            resources = json.loads((kit / "local" / "resources.json").read_text())
            resources["class_allow_list"] += ["bench_bare.Server", "bench_bare.Client"]
            (kit / "local" / "resources.json").write_text(json.dumps(resources))
            side = "server" if name == "coordinator" else "client"
            command = [sys.executable, "-m", f"nvflare.private.fed.app.{side}.{side}_train", "-m", str(kit)]
            command += ["-s", f"fed_{side}.json", "--set", "secure_train=true", "org=fedspan", "config_folder=config"]
            command += [f"uid={name}"] * (side == "client")
            quiet = subprocess.DEVNULL
            processes.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True))
        session = _logged_in(here)
        job = write_relay_job(folder / "job", SITES)
        for file, own, name in (("server", "relay", "Server"), ("client", "site", "Client")):
            path = job / "app" / "config" / f"config_fed_{file}.json"
            config = json.loads(path.read_text())
            config["np_download_chunk_size"] = 0
            config["components"] = [{"id": own, "path": f"bench_bare.{name}", "args": {}}]
            path.write_text(json.dumps(config))
        session._flare.submit_job(str(job))
        until = time.monotonic() + 120.0
        while not out.exists() and time.monotonic() < until:
            time.sleep(0.2)
        session.close()
        return statistics.median(json.loads(out.read_text())) * 1e3
    finally:
        for process in processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()
        shutil.rmtree(folder / "bare", ignore_errors=True)


def _logged_in(here: LocalDeployment) -> UserSession:
    until = time.monotonic() + 60.0
    while True:
        try:
            session = UserSession(read_kit(here.kit("alice")), 5.0)
            if set(session.registered()) == set(SITES):
                return session
            session.close()
        except fs.errors.FedspanError:
            pass
        if time.monotonic() > until:
            raise TimeoutError("the bare federation did not start")
        time.sleep(0.5)
