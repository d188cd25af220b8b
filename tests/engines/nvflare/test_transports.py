"""The other ways that messages travel: the same bytes come out, also through a proxy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

from .conftest import SITES, rows_of

pytestmark = pytest.mark.slow

PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture
def proxy(monkeypatch):
    """A proxy as a process of its own, named in the environment; return the lines that it prints."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    program = Path(__file__).with_name("proxy_process.py")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as process:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{process.stdout.readline().strip()}")
        yield process
        process.kill()


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_all_messages_of_sites_and_users_go_through_the_proxy_that_the_environment_names(transport, proxy, tmp_path):
    names = SITES[:1]
    tomls = {}
    for name in names:
        np.savez(tmp_path / f"{name}.npz", X=rows_of(name))
        tomls[name] = tmp_path / f"{name}.toml"
        tomls[name].write_text(f'[site]\nname = "{name}"\n[data]\nfile = "{name}.npz"\n[rules]\nlevel = "trusted"\n')
    sites = [fs.Site(name, rows_of(name)) for name in names]
    alone = fs.FedPCA(2).fit(fs.LocalFederation(sites)).components_.tobytes()
    with LocalDeployment(tmp_path, "proxied", tomls, transport=transport) as here:
        here.start()
        with fs.connect(here.kit("alice"), policy=fs.Policy(quorum="all", deadline=60.0)) as fed:
            assert fs.FedPCA(2).fit(fed).components_.tobytes() == alone
    proxy.kill()
    lines = proxy.stdout.read().split("\n")
    assert lines.count(f"CONNECT {here.plan.server}") >= len(names) + 1  # each site, and alice
