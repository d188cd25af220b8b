"""The conclusion of ``fedspan federation demo``; tests of the engine compare the bytes of a real federation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.cli.federation import demo_federation_command as federation_demo


class NoFederation:
    def __init__(self, folder, name, tomls, users):
        assert sorted(tomls) == sorted(federation_demo.SITES)
        assert all(toml.read_text().startswith("[site]") for toml in tomls.values())
        assert users == {"alice": "analyst"}
        self.plan = SimpleNamespace(server="nowhere:1")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def start(self):
        return None

    def kit(self, name):
        return name


@pytest.mark.parametrize(
    ("factor", "code", "shown"), [(1.0, 0, "byte for byte"), (1.0 + 1e-9, 1, "THE RESULT DIFFERS")]
)
def test_one_bit_decides(monkeypatch, capsys, factor, code, shown):
    def connect(kit, *, seed, policy):
        rows = federation_demo._rows(seed)
        return fs.LocalFederation([fs.Site(name, X * factor) for name, X in rows.items()], seed=seed, policy=policy)

    monkeypatch.setattr(federation_demo, "LocalDeployment", NoFederation)
    monkeypatch.setattr(federation_demo, "connect", connect)
    assert main(["federation", "demo", "--seed", "3"]) == code
    assert shown in capsys.readouterr().out


def test_a_missing_package_is_one_sentence_and_no_process_is_started(monkeypatch, capsys):
    monkeypatch.setattr("fedspan.engines.nvflare.setup.kit.find_spec", lambda name: None)
    assert main(["federation", "demo"]) == 2
    error = capsys.readouterr().err
    assert error == "fedspan: real federations need NVIDIA FLARE: pip install '.[nvflare]' in a checkout\n"
