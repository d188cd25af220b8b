"""``fedspan logs --follow`` ends when the study is over."""

from __future__ import annotations

from fedspan.cli import main
from fedspan.cli.operation import logs_command
from fedspan.engines.nvflare.client import study_client
from fedspan.engines.nvflare.setup.kit import FederationPlan
from fedspan.engines.nvflare.setup.provision import provision


def test_a_log_that_is_followed_ends_with_its_study(tmp_path, monkeypatch, capsys):
    provision(FederationPlan("demo", "127.0.0.1", 8002, ("a",), {"alice": "analyst"}), tmp_path / "kits")
    answers = iter([("one\n", False), ("one\ntwo\n", False), ("one\ntwo\nthree\n", True)])
    monkeypatch.setattr(study_client, "log_of_study", lambda kit, study: next(answers))
    monkeypatch.setattr(logs_command, "EVERY", 0.0)
    assert main(["logs", str(tmp_path / "kits" / "alice"), "0123456789ab", "--follow"]) == 0
    assert capsys.readouterr().out.split() == ["one", "two", "three"]
