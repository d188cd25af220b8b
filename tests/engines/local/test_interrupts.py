"""An interrupt or an exit inside a step ends the run: it is meant for the process, not for one site."""

from __future__ import annotations

import pytest

import fedspan as fs
from tests.secure_sum.players import sites_of


class EndError(BaseException):
    """What others use to end a process."""


ENDS = {"interrupt": KeyboardInterrupt, "exit": SystemExit, "other": EndError}


@fs.step
def ended(site, how):
    if site.name == "s01":
        raise ENDS[how]("the end")
    return {"n": 1}


@fs.step
def failing(site):
    if site.name == "s01":
        raise ValueError("this site cannot")
    return {"n": 1}


@pytest.mark.parametrize("how", sorted(ENDS))
@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)], ids=["plain", "secure"])
def test_the_run_ends_as_such(how, n_jobs, policy):
    fed = fs.LocalFederation(sites_of(5), n_jobs=n_jobs, policy=policy)
    with fed.begin("a run") as run:
        with pytest.raises(ENDS[how], match="the end"):
            run.sum(ended, how=how)
        assert run.sum(failing)["n"] == 4  # an error of one site is one of that site alone
