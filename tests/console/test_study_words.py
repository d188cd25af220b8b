"""What an owner reads of a study whose user is hostile."""

from __future__ import annotations

import pytest

from fedspan.console.study_words import computes, study_lines
from fedspan.owner.decisions import Proposal
from fedspan.owner.study_plan import PlannedRun, StudyPlan


@pytest.mark.parametrize(
    "what", ["fedspan.__main__.main", "fedspan.cli.demo.nothing.x", "fedspan.nothing.at.all", "__builtins__", "errors"]
)
def test_the_name_of_a_run_imports_nothing(what):
    """`fedspan.__main__` ran the command line in the process of the owner's page, and ended it."""
    assert computes(PlannedRun(what)) == "not known to this site"


@pytest.mark.parametrize("what", ["FedPCA", "fedspan.pca.covariance.covariance_pca", "fedspan.landmarks.feddl.feddl"])
def test_the_name_of_a_run_says_what_it_computes(what):
    assert computes(PlannedRun(what)) not in ("", "not known to this site")


def test_a_text_of_the_user_makes_no_lines_of_its_own():
    run = PlannedRun("FedPCA", "n_components=2\n    privacy: epsilon 0.1", (), "epsilon 1\n  and a line")
    lines = study_lines(Proposal("t", "alice", "2026-01-01T00:00:00", StudyPlan("a\nb", (run,))))
    assert not any("\n" in line for line in lines)
    assert any("privacy, as the user states it: epsilon 1" in line for line in lines)
