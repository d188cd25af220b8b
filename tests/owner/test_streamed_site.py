"""A site whose table stays in its Parquet files: the same site as in memory, in less memory."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedspan as fs
from fedspan.cli.main import main
from fedspan.engines.local.embedded import LocalFederation
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.errors import InputError
from fedspan.owner import read_owned_site
from fedspan.owner.admission import Admission
from fedspan.owner.allowed_steps import AllowedSteps
from fedspan.owner.rules import Rules
from fedspan.sums.moments import local_sums, moments

from ..engines.remote.test_site_worker import Desk


def table_of(rows=3000, seed=0):
    """Return numbers, whole numbers with gaps, truth values with gaps, late sorts of cells, and text."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(50.0, 2.0, size=(rows, 4)), columns=["a", "b", "c", "d"])
    frame["count"] = rng.integers(0, 9, rows)
    frame["late"] = 1.0
    frame.loc[rows - 1, "late"] = 0.5
    frame["gaps"] = pd.array(np.where(rng.random(rows) < 0.1, None, rng.integers(0, 2, rows)), dtype="Int64")
    frame["truth"] = pd.array(np.where(rng.random(rows) < 0.1, None, rng.random(rows) < 0.5), dtype="boolean")
    frame["flag"] = rng.random(rows) < 0.5
    frame["empty"] = np.nan
    frame["ward"] = np.array(["A", "B", "C"])[rng.integers(0, 3, rows)]
    frame["sick"] = rng.integers(0, 2, rows)
    return frame


@pytest.fixture
def folder(tmp_path):
    """A folder of two Parquet files with several groups of rows each."""
    (tmp_path / "rows").mkdir()
    frame = table_of()
    for name, part in {"1": frame[:1700], "2": frame[1700:]}.items():
        pq.write_table(pa.Table.from_pandas(part), tmp_path / "rows" / f"{name}.parquet", row_group_size=500)
    return tmp_path


DATA = 'file = "rows"\ntarget = "sick"\ntask = "ward"\ndrop = ["empty"]'


def both(write_site, data=DATA, **sections):
    """Return the site with its rows in memory, and with its rows in their files."""
    held = read_owned_site(write_site(data, **sections))
    return held, read_owned_site(write_site(f"{data}\nstream = true", **sections))


@pytest.mark.parametrize("where", [None, "a > 50 and ward <> 'C'"])
def test_the_rows_are_those_of_a_site_in_memory(write_site, folder, where):
    held, streamed = both(write_site, DATA if where is None else f'{DATA}\nwhere = "{where}"')
    assert streamed.site.streamed
    assert streamed.describe() == held.describe()
    assert len(streamed.site) == len(held.site)
    assert (where is None) == (len(held.site) == 3000)
    for mine, its in ((streamed.site.y, held.site.y), (streamed.site.task, held.site.task)):
        np.testing.assert_array_equal(mine, its)
        assert mine.dtype == its.dtype
    blocks = [batch.X for batch in streamed.site.batches(700)]
    assert max(map(len, blocks)) <= 700
    np.testing.assert_array_equal(np.concatenate(blocks), held.site.X.astype(float))


def test_methods_by_sums_give_what_they_give_in_memory(write_site, folder):
    data = DATA.replace('"empty"', '"empty", "gaps", "truth"')
    held, streamed = (LocalFederation([owned.site]) for owned in both(write_site, data))
    np.testing.assert_allclose(moments(streamed).variance, moments(held).variance, rtol=1e-12)
    one, other = (fs.FedPCA(3).fit(fed) for fed in (held, streamed))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-12)
    one, other = (fs.FedLogisticRegression().fit(fed) for fed in (held, streamed))
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-9)


def test_text_goes_through_an_encoder(write_site, folder):
    data = 'file = "rows"\ncolumns = ["a", "ward", "gaps", "flag"]'
    one, other = (fs.FedTabularEncoder().fit(LocalFederation([owned.site])) for owned in both(write_site, data))
    assert list(other.get_feature_names_out()) == list(one.get_feature_names_out())


@pytest.mark.parametrize("name", ["a", "count", "late", "gaps", "truth", "flag", "empty", "ward"])
@pytest.mark.parametrize("kind", ["boolean", "integer", "number", "text", "time"])
def test_a_schema_finds_what_it_finds_in_memory(write_site, folder, name, kind):
    """Also of a sort of cell that comes in the last row."""

    def problems(stream):
        try:
            read_owned_site(write_site(f'file = "rows"\ncolumns = ["{name}"]{stream}', schema=f'{name} = "{kind}"'))
        except InputError as error:
            return str(error)
        return None

    assert problems("\nstream = true") == problems("")


@pytest.mark.parametrize(
    ("data", "more", "text"),
    [
        ('file = "rows.csv"', {}, "Parquet and Feather files"),
        ('url = "sqlite:///x.db"\nquery = "SELECT 1"', {}, "Parquet and Feather files"),
        (DATA, {"privacy": 'ledger = "ledger"\nepsilon = 1\ndelta = 1e-6'}, "a [privacy] section"),
        (DATA, {"rules": 'level = "aggregate"'}, "level = 'aggregate'"),
        ('file = "rows"\ncolumns = ["a", "nothing"]', {}, "no column 'nothing'"),
        ('file = "rows"\nwhere = "nothing > 1"', {}, "no column 'nothing', which 'where' is about"),
        ('file = "rows"\nwhere = "a > 1e9"', {}, "no rows that the row filter keeps"),
    ],
)
def test_what_cannot_stream_is_refused(write_site, folder, data, more, text):
    with pytest.raises(InputError, match=text.replace("[", r"\[")):
        read_owned_site(write_site(f"{data}\nstream = true", **more))


def test_times_and_files_of_other_types_are_refused(write_site, folder):
    times = pd.DataFrame({"a": [1.0, 2.0], "at": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    times.to_parquet(folder / "times.parquet")
    with pytest.raises(InputError, match="column 'at' holds timestamp"):
        read_owned_site(write_site('file = "times.parquet"\nstream = true'))
    pd.DataFrame({"a": [1, 2], "b": [1.0, 2.0]}).to_parquet(folder / "rows" / "3.parquet")
    with pytest.raises(InputError, match=r"the file 3\.parquet has no column 'a' of type double"):
        read_owned_site(write_site('file = "rows"\ncolumns = ["a", "b"]\nstream = true'))


def test_a_file_that_changes_in_a_run_fails_the_site_and_is_read_afterwards(write_site, folder):
    owned = read_owned_site(write_site('file = "rows"\ncolumns = ["a", "b"]\nstream = true'))
    site, before = owned.site, owned.site.fingerprint()
    assert not owned.refresh()
    file = folder / "rows" / "2.parquet"
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputError, match="has changed since the site opened it") as caught:
        list(site.batches(100))
    assert str(folder) not in str(caught.value)  # the sentence reaches the coordinator
    assert owned.refresh()
    assert owned.site.fingerprint() != before
    assert sum(len(batch.X) for batch in owned.site.batches(100)) == 3000


def test_cells_of_a_damaged_file_stay_at_the_site(tmp_path):
    """The reader's words have them: these are a note, for the site's own log."""
    file = tmp_path / "rows.csv"
    for last in ("secret-cell,2", "1,2,secret-cell"):
        file.write_text("a,b\n" + "1.5,2.5\n" * 400_000 + last)
        with pytest.raises(InputError) as caught:
            list(fs.stream(file).batches(1000))
        assert "secret" not in str(caught.value)
        assert "secret" in caught.value.__notes__[0]


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"\xff" * 40])
def test_a_damaged_file_with_the_old_time_is_refused_in_a_sentence(write_site, tmp_path, damage):
    file = tmp_path / "rows.parquet"
    words = pa.table({"w": [f"secret{k}" for k in range(3000)]})
    pq.write_table(words, file, compression="none", use_dictionary=False)
    owned = read_owned_site(write_site('file = "rows.parquet"\nstream = true'))
    data, stat = bytearray(file.read_bytes()), file.stat()
    at = data.index(b"secret77") - (4 if len(damage) > 2 else 0)
    data[at : at + len(damage)] = damage
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(InputError, match="its file can't be read: its cells are damaged") as caught:
        list(owned.site.batches(100))
    assert "cr77" not in str(caught.value)


def test_the_owner_checks_a_site_that_streams(write_site, folder, capsys):
    path = write_site(f"{DATA}\nstream = true")
    assert main(["site", "check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "3,000 rows" in printed
    assert "read in blocks" in printed


def test_steps_in_a_process_of_less_memory_than_the_table(write_site, tmp_path):
    """The table has 96 MB; a step may take 48."""
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(tmp_path / "large.parquet", pa.schema([(f"x{k}", pa.float64()) for k in range(60)])) as file:
        total = np.zeros(60)
        for _ in range(20):
            part = rng.integers(0, 9, size=(10_000, 60)).astype(float)
            total += part.sum(axis=0)
            file.write_table(pa.table({f"x{k}": part[:, k] for k in range(60)}))
    path = write_site('file = "large.parquet"\nstream = true')
    path.write_text(path.read_text().replace('"clinic"', '"a"'))  # the desk's site
    owned = read_owned_site(path)
    rules = Rules(AllowedSteps(["installed"]), least_rows=1, step_memory=48 * 2**20, step_seconds=300)
    desk = Desk(tmp_path / "a", owned.site, make_worker=SiteWorker, admission=Admission(owned.site, rules))
    try:
        found = desk.ask(local_sums)
    finally:
        desk.worker.close()
    assert found.get("why") is None
    np.testing.assert_array_equal(found["sum"], total)
    assert found["n"] == 200_000
