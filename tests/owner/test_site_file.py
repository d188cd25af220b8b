"""``site.toml``: what it may state, and that every problem is reported."""

from __future__ import annotations

import sys

import pytest

from fedspan.errors import InputError
from fedspan.owner.site_file import SiteFileError, read_site_file


def test_installed_transforms_and_valid_users_are_accepted(write_site):
    rules = read_site_file(write_site(rules='transforms = ["sums"]\nusers = ["alice", "b-2"]')).rules
    assert rules.transforms == ("sums",)
    assert rules.users == ("alice", "b-2")
    assert read_site_file(write_site(rules="transforms = []\nusers = []")).rules.users == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", r"must have either 'file' \(a table\), 'url' and 'query'"),
        ('file = "rows.csv"\nurl = "sqlite:///x"', "must have either 'file'"),
        ('file = "gone.csv"', "gone.csv does not exist"),
        ('file = "site.toml"', "tables are read from .csv"),
        ('file = "rows.csv"\nquery = "SELECT 1"', "query belongs to a database"),
        ('url = "sqlite:///x.db"', "url needs a query"),
        ("url = 3", "url must be text"),
        ('file = "rows.csv"\ncolumns = "age"', r"\[data\] columns must be a list of column names"),
        ('file = "rows.csv"\ncolumns = []', "columns must name at least one column"),
        ('file = "rows.csv"\ncolumns = ["age"]\nlabel = "age"', "names the column 'age' twice"),
        ('file = "rows.csv"\nlabel = 3', r"\[data\] label = 3 must be text"),
        ('file = "rows.csv"\nwhere = "age >"', r"\[data\] where = 'age >' is no SQL condition"),
        ('file = "rows.csv"\nmissing = "NA"', r"\[data\] missing must be a list of texts that mean a missing cell"),
        ('url = "sqlite:///x"\nquery = "SELECT 1"\nmissing = ["NA"]', "missing is for CSV files"),
        (
            'file = "rows.csv"\ncolum = ["age"]',
            r"\[data\] 'colum' is not a known key; known are columns, decimal, drop, encoding, file",
        ),
        ('url = "sqlite:///x"\nquery = "SELECT 1"\ntimeout = -1', "timeout=-1 must be a finite number above 0"),
    ],
)
def test_data_that_are_refused(write_site, data, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(data))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ('steps = "summaries"', "must be a list of steps or groups"),
        ('steps = ["pca.fedpq_update"]', r"neither the id of an installed step.* did you mean 'pca.fedp[eg]_update'\?"),
        ("least_sites = 1", "least_sites=1 must be a whole number of at least 2"),
        ("least_rows = 0", "least_rows=0 must be a whole number of at least 1"),
        ('largest_reply = "1 MB"', "largest_reply='1 MB' must be a whole number"),
        ("rounds_per_day = -1", "rounds_per_day=-1 must be a whole number of at least 0"),
        ('users = "alice"', "users must be a list of users' names"),
        ('sums_only = "yes"', "sums_only = 'yes' must be true or false"),
        ('users = [" alice"]', "users: ' alice' can't be a name in a certificate: names are letters, digits"),
        ('users = [""]', "users: '' can't be a name"),
        (
            'transforms = ["sums.standardise"]',
            r"neither the id of an installed transform.* did you mean 'sums.standardize'\?",
        ),
        (
            'transforms = ["typo.zoom"]',
            "'typo.zoom' is neither the id of an installed transform, nor the beginning of such ids, "
            "nor 'affine' or 'fedspan' or 'installed'",
        ),
        ('transforms = [""]', "'' is neither the id"),
        ("hours = 3", r"\[rules\] 'hours' is not a known key; known are approval, largest_reply"),
    ],
)
def test_rules_that_are_refused(write_site, rules, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(rules=rules))


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ("epsilon = 1.0\ndelta = 1e-5", "needs the file of the site's ledger"),
        ('ledger = "l"\nepsilon = 1.0', "epsilon and delta go together"),
        ('ledger = "l"\nepsilon = -1\ndelta = 1e-5', r"\[privacy\] epsilon=-1"),
        ('ledger = "l"\nrho = 1', "'rho' is not a known key; known are delta, epsilon, ledger, strict"),
    ],
)
def test_budgets_that_are_refused(write_site, privacy, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(privacy=privacy))


def test_every_problem_is_reported(write_site):
    path = write_site('file = "gone.csv"', "least_rows = 0", privacy="strict = true", schema='age = "float"')
    with pytest.raises(SiteFileError) as caught:
        read_site_file(path)
    assert len(caught.value.problems) == 4
    assert all(problem.startswith(str(path)) for problem in caught.value.problems)
    path.write_text('[data]\nfile = "rows.csv"\n')
    with pytest.raises(InputError, match=r"a \[site\] table with a name is missing"):
        read_site_file(path)
    path.write_text('[sites]\nname = "x"\n')
    with pytest.raises(
        InputError, match="'sites' is not a known key; known are data, log, privacy, rules, schema, site"
    ):
        read_site_file(path)


def test_own_modules_are_installed(write_site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ourlab_steps.py").write_text(
        "import fedspan as fs\n\n\n@fs.step\ndef local_count(site):\n    return {'n': len(site)}\n"
    )
    path = write_site(rules='steps = ["ourlab_steps"]')
    with pytest.raises(InputError, match="'ourlab_steps' is neither the id of an installed step"):
        read_site_file(path)
    path.write_text(path.read_text().replace('name = "clinic"', 'name = "clinic"\nmodules = ["ourlab_steps"]'))
    steps = read_site_file(path).rules.steps
    assert "ourlab_steps.local_count" in steps
    assert "sums.sums" not in steps
    sys.modules.pop("ourlab_steps")
    path.write_text(path.read_text().replace('modules = ["ourlab_steps"]', 'modules = ["ourlab_stepps"]'))
    with pytest.raises(InputError, match="the module 'ourlab_stepps' cannot be imported: ModuleNotFoundError"):
        read_site_file(path)


def test_an_owner_limits_the_work_of_a_step(tmp_path):
    path = tmp_path / "site.toml"
    (tmp_path / "rows.csv").write_text("a\n1\n")
    text = '[site]\nname = "a"\n[data]\nfile = "rows.csv"\n[rules]\n'
    path.write_text(text + "step_seconds = 60\nstep_memory = 4_000_000_000\n")
    rules = read_site_file(path).rules
    assert (rules.step_seconds, rules.step_memory) == (60, 4_000_000_000)
    assert rules.in_words()["work"] == "a step may take 60 seconds and 4,000,000,000 bytes"
    path.write_text(text + "step_memory = 0\n")
    with pytest.raises(InputError, match="step_memory=0 must be a whole number"):
        read_site_file(path)
