"""``fs.connect`` without NVIDIA FLARE."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fedspan as fs
from fedspan.engines.nvflare.client import connect as connecting


def test_connecting_without_nvflare_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr("fedspan.engines.nvflare.setup.kit.find_spec", lambda name: None)
    with pytest.raises(fs.errors.MissingPackageError, match=r"pip install .*\[nvflare\]"):
        fs.connect("kits/alice")


def test_a_user_who_connects_reads_within_seconds_that_no_site_is_there(monkeypatch, caplog):
    class Empty:
        sites, waited = ("north",), 0.0

        def wait_for(self, sites, limit):
            self.waited += limit
            return frozenset()

        def why_not(self, site):
            return f"{site} is not connected"

        def close(self):
            """Close nothing."""

    transport = Empty()
    monkeypatch.setattr(connecting, "NVFlareTransport", lambda kit: transport)
    with pytest.raises(fs.errors.FedspanError, match="no site can be reached: north is not connected"):
        connecting.connect_as(None, None, Path("kit"), 0, None, None)
    assert caplog.messages == ["waiting for sites, at most 50 seconds: north is not connected"]
    assert transport.waited == connecting.START_LIMIT


def test_import_fedspan_does_not_import_nvflare():
    code = "import fedspan, sys; sys.exit('nvflare' in sys.modules or 'cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
