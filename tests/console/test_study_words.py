"""What an owner reads of a study whose user is hostile."""

from __future__ import annotations

import pytest

from fedspan.console.owner_pages import OwnerPages
from fedspan.console.page_server import Visit
from fedspan.console.site_view import SiteView
from fedspan.console.study_words import computes, step_words, study_lines
from fedspan.owner.decisions import Proposal
from fedspan.owner.study_plan import PlannedRun, PlannedStep, StudyPlan
from tests.engines.remote.people import user

from .owned_example import Clinic


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


def test_what_a_plan_leaves_open_is_shown_also_of_transforms():
    """A plan with the parameters of its transforms left open read as if there were none."""
    step = PlannedStep("sums.sums", 1, "sum", ("sums.standardize",), {"mean of sums.standardize, transform 1": ()})
    assert "mean of sums.standardize, transform 1: as the run goes" in step_words(step).fixed


def test_a_long_plan_hides_nothing_on_the_page(tmp_path):
    """The page cut what a plan fixes after 600 letters, and what came later was approved without being seen."""
    clinic = Clinic(tmp_path / "site")
    try:
        parameters = {"a": ('"harmless"',) * 90, "threshold": ("12345",)}
        run = PlannedRun("FedPCA", "", (PlannedStep("sums.sums", 1, "sum", (), parameters),))
        clinic.propose(plan=StudyPlan("x", (run,)))
        shown = OwnerPages(SiteView(clinic.config)).studies(Visit("/", {})).body.decode()
        assert "threshold = 12345" in shown
        assert "The user calls it <b>FedPCA</b>" in shown
    finally:
        clinic.close()


def test_refused_requests_fill_no_list_of_running_runs(tmp_path):
    """The page lists 20 runs, the latest first: a user that may run nothing hid the one to be stopped."""
    clinic = Clinic(tmp_path / "site", rules="")
    try:
        assert "sum" in clinic.desk.ask(run="FedPCA#0 real")
        for number in range(30):
            clinic.desk.ask("landmarks.pull", run=f"FedPCA#0 fake{number}", who=user("bob"))
        assert [one.run for one in SiteView(clinic.config).running] == ["FedPCA#0 real"]
    finally:
        clinic.close()
