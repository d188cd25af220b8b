"""``fs.connect`` without NVIDIA FLARE."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedspan as fs


def test_connecting_without_nvflare_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr("fedspan.engines.nvflare.setup.kit.find_spec", lambda name: None)
    with pytest.raises(fs.errors.MissingPackageError, match=r"pip install .*\[nvflare\]"):
        fs.connect("kits/alice")


def test_import_fedspan_does_not_import_nvflare():
    code = "import fedspan, sys; sys.exit('nvflare' in sys.modules or 'cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
