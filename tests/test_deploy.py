"""The files of ``deploy``: their commands are fedspan's, nothing runs as root, and root file systems are read only."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fedspan.cli.main import _parser

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_image_runs_as_a_user_of_its_own_and_is_checked():
    text = (DEPLOY / "Containerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, flags=re.MULTILINE)
    check = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", text, flags=re.MULTILINE)[1])
    assert check[0] == "fedspan"
    _parser().parse_args(check[1:])
    extras = re.search(r"\.\[([\w,]+)\]", text)[1].split(",")
    declared = (DEPLOY.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", declared, flags=re.MULTILINE) for extra in extras)


@pytest.mark.parametrize("service", ["coordinator", "site"])
def test_services_are_hardened_and_their_commands_are_known(compose, service):
    found = compose["services"][service]
    assert found["read_only"] is True
    assert found["user"] == "10001:10001"
    assert found["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in found["security_opt"]
    _parser().parse_args(found["command"])
    _parser().parse_args(found["healthcheck"]["test"][2:])
    page = next(port for port in found["ports"] if port.endswith(":8765"))
    assert page.startswith("127.0.0.1:")  # the page is reached from this machine alone


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_hardened_and_their_commands_are_known(unit):
    parsed = configparser.ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str
    parsed.read_string(unit.read_text())
    service = parsed["Service"]
    assert service["User"] == "fedspan"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    _parser().parse_args(shlex.split(service["ExecStart"])[1:])


def test_folders_are_those_of_the_checkout(compose):
    """Compose reads a relative path from the folder of its file."""
    for service in compose["services"].values():
        for volume in service["volumes"]:
            default = re.match(r"\$\{\w+:-([^}]+)\}", volume)[1]
            assert (DEPLOY / default).resolve().parent == DEPLOY.parent


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_reads_the_units(unit, tmp_path):
    program = tmp_path / "fedspan"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name.replace("@", "@north")
    copy.write_text(unit.read_text().replace("/opt/fedspan/bin/fedspan", f'"{program}"'))
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    about = [line for line in found.stderr.splitlines() if "fedspan" in line]
    assert about == []


def test_the_monitors_example_uses_tokens():
    jobs = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert [job["authorization"]["type"] for job in jobs] == ["Bearer", "Bearer"]
