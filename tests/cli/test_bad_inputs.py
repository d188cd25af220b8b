"""Bad inputs: each is one sentence that names the way out, exit code 2, no traceback, and nothing half-written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedspan.cli import main
from tests.cli.hospital_files import rows, write_hospitals, write_new

STUDY = """
[data]
sites = { a = "a.csv", b = "b.csv", c = "c.csv" }
[[preprocess]]
name = "FedStandardScaler"
[model]
name = "FedPCADetector"
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with good tables, a good study of them, and a trained one."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        files = write_hospitals(folder)
        write_new(folder)
        for seed, name in enumerate("abc"):
            rows(seed)[["age", "dose"]].to_csv(f"{name}.csv", index=False)
        assert main(["init", *files]) == 0
        (folder / "study.toml").rename("hospitals.toml")
        (folder / "study.toml").write_text(STUDY)
        assert main(["run", "hospitals.toml"]) == 0
    return folder


def replaced(old: str, new: str) -> Callable[[Path], Any]:
    """Return a change of the study."""

    def change(folder: Path) -> None:
        text = (folder / "study.toml").read_text()
        assert old in text
        (folder / "study.toml").write_text(text.replace(old, new))

    return change


def frame(make: Callable[[pd.DataFrame], pd.DataFrame], file: str = "b.csv") -> Callable[[Path], Any]:
    """Return a change of a table."""
    return lambda folder: make(pd.read_csv(folder / file)).to_csv(folder / file, index=False)


def wrote(file: str, content: bytes | str) -> Callable[[Path], Any]:
    """Return a change that writes a file."""
    return lambda folder: (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def both(*changes: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return some changes as one."""
    return lambda folder: [change(folder) for change in changes]


def nothing(folder: Path) -> None:
    """Change nothing."""


def regression(target: str) -> Callable[[Path], Any]:
    """Return a change to a regression."""
    return both(
        replaced('name = "FedPCADetector"', 'name = "FedMixedRegressor"\nn_clusters = 1'),
        replaced("[data]", f"[data]\n{target}"),
    )


RUN = ["run", "study.toml"]
APPLY = ["apply", "hospitals", "new.csv", "--out", "out.csv"]

BAD: dict[str, tuple[Callable[[Path], Any], list[str], str]] = {
    "no command": (nothing, [], "required: COMMAND; 'fedspan --help'"),
    "unknown command": (nothing, ["trian"], "invalid choice: 'trian'"),
    "no study": (nothing, ["run"], "required: STUDY.toml; 'fedspan run --help'"),
    "unknown option": (nothing, [*RUN, "--fast"], "unrecognized arguments: --fast"),
    "study that does not exist": (nothing, ["run", "none.toml"], "none.toml cannot be read: No such file"),
    "study that is a folder": (nothing, ["run", "hospitals"], "hospitals cannot be read: Is a directory"),
    "study that is a table": (nothing, ["run", "a.csv"], "a.csv is not valid TOML"),
    "not TOML": (replaced("[model]", "[model"), RUN, "is not valid TOML"),
    "unknown section": (replaced("[data]", "[dat]"), RUN, "'dat' is not a known key; known are data"),
    "unknown key": (replaced("sites", "sties"), RUN, "'sties' is not a known key; known are"),
    "unknown model": (replaced("FedPCADetector", "FedMagic"), RUN, "name = 'FedMagic' must be one of Fed"),
    "unknown parameter": (
        replaced('"FedPCADetector"', '"FedPCADetector"\nquantil = 0.9'),
        RUN,
        "'quantil' is not a known",
    ),
    "impossible parameter": (replaced('"FedPCADetector"', '"FedPCADetector"\nquantile = 2'), RUN, "quantile=2 must be"),
    "too many components": (
        replaced('"FedPCADetector"', '"FedPCADetector"\nn_components = 7'),
        RUN,
        "n_components=7 must be",
    ),
    "aggregator as a word": (
        replaced('"FedPCADetector"', '"FedPCADetector"\naggregator = "Krum"'),
        RUN,
        'aggregator must be a table, such as { name = "GeometricMedian" }',
    ),
    "unknown aggregator": (
        replaced('"FedPCADetector"', '"FedPCADetector"\naggregator = { name = "Mode" }'),
        RUN,
        "aggregator: name = 'Mode' must be one of",
    ),
    "negative seed": (replaced("[data]", "seed = -1\n[data]"), RUN, "seed=-1 must be"),
    "no sites": (
        replaced('{ a = "a.csv", b = "b.csv", c = "c.csv" }', "{}"),
        RUN,
        "sites must be a table of files, such",
    ),
    "table that does not exist": (replaced("b.csv", "bb.csv"), RUN, "bb.csv does not exist"),
    "table of an unknown kind": (
        both(replaced("b.csv", "b.sas"), wrote("b.sas", "x")),
        RUN,
        "b.sas: tables are read from .csv",
    ),
    "empty table": (wrote("b.csv", ""), RUN, "b.csv is empty: its first line must name the columns"),
    "header alone": (wrote("b.csv", "age,dose\n"), RUN, "site 'b': has no rows: leave it out of the study"),
    "bytes that are no text": (wrote("b.csv", b"\x00\xff\xfe\x81" * 50), RUN, "it is damaged, or of another kind"),
    "damaged Parquet": (
        both(replaced("b.csv", "b.parquet"), wrote("b.parquet", "x")),
        RUN,
        "b.parquet cannot be read as",
    ),
    "damaged Excel": (both(replaced("b.csv", "b.xlsx"), wrote("b.xlsx", "x")), RUN, "b.xlsx cannot be read as"),
    "separator not stated": (
        frame(lambda table: table.rename(columns={"age": "age;dose"})[["age;dose"]]),
        RUN,
        "state what separates its fields, for example separator = ';'",
    ),
    "encoding not stated": (
        wrote("b.csv", "age,dose\n1,ä\n".encode("cp1252")),
        RUN,
        "state its encoding, for example encoding = 'cp1252'",
    ),
    "decimal comma not stated": (
        wrote("b.csv", 'age,dose\n"1,5",2\n"2,5",3\n'),
        RUN,
        "site 'b': column 'age' holds text or times, not numbers: let FedTabularEncoder be the first",
    ),
    "long separator": (replaced("[data]", '[data]\nseparator = "||"'), RUN, "separator='||' must be one character"),
    "unknown decimal": (replaced("[data]", '[data]\ndecimal = "x"'), RUN, "decimal='x' must be '.' or ','"),
    "unknown encoding": (replaced("[data]", '[data]\nencoding = "utf-9"'), RUN, "encoding='utf-9' is not known: use"),
    "missing as a word": (replaced("[data]", '[data]\nmissing = "?"'), RUN, "missing must be a list of texts"),
    "dialect without CSV files": (
        both(
            lambda folder: [pd.read_csv(folder / f"{n}.csv").to_parquet(folder / f"{n}.parquet") for n in "abc"],
            replaced(".csv", ".parquet"),
            replaced("[data]", '[data]\nseparator = ";"'),
        ),
        RUN,
        "are for CSV files, and the study names none: leave them out",
    ),
    "ragged lines": (
        wrote("b.csv", "age,dose\n1,2\n3,4,5\n"),
        RUN,
        "line 3 has 3 fields, and the header names 2 columns",
    ),
    "two columns of one name": (wrote("b.csv", "age,age\n1,2\n"), RUN, "two columns named 'age': rename one"),
    "other columns": (
        frame(lambda table: table.rename(columns={"dose": "Dose"})),
        RUN,
        "site 'b': lacks 'dose' and also has 'Dose': leave out what not all sites have, with drop = ['dose', 'Dose']",
    ),
    "text without an encoder": (
        frame(lambda table: table.assign(dose="high")),
        RUN,
        "let FedTabularEncoder be the first",
    ),
    "gaps without an encoder": (
        frame(lambda table: table.assign(dose=table["dose"].where(table["age"] > 50))),
        RUN,
        "site 'b': column 'dose' with missing cells: let FedTabularEncoder be the first [[preprocess]] step",
    ),
    "infinite numbers": (frame(lambda table: table.assign(dose=np.inf)), RUN, "feature dose at site 'b'"),
    "column to drop that does not exist": (
        replaced("[data]", '[data]\ndrop = ["doze"]'),
        RUN,
        "no site has a column 'doze', which 'drop' names: correct the name",
    ),
    "feature that does not exist": (
        replaced("[data]", '[data]\nfeatures = ["doze"]'),
        RUN,
        "sites 'a', 'b' and 'c': has no column 'doze'; it has 'age' and 'dose': correct the name in [data]",
    ),
    "label that does not exist": (replaced("[data]", '[data]\nlabel = "ill"'), RUN, "no column 'ill' for the label"),
    "column with two uses": (
        replaced("[data]", '[data]\nlabel = "dose"\ndrop = ["dose"]'),
        RUN,
        "names the column 'dose' twice: each column has one use",
    ),
    "no column left": (replaced("[data]", '[data]\ndrop = ["age", "dose"]'), RUN, "no column is left to learn from"),
    "no site column": (
        replaced('sites = { a = "a.csv", b = "b.csv", c = "c.csv" }', 'file = "a.csv"\nsite_column = "ward"'),
        RUN,
        "a.csv has no site column 'ward'; it has 'age' and 'dose'",
    ),
    "rows without a site": (
        both(
            replaced('sites = { a = "a.csv", b = "b.csv", c = "c.csv" }', 'file = "a.csv"\nsite_column = "ward"'),
            frame(lambda table: table.assign(ward=np.where(table["age"] > 60, "x", None)), "a.csv"),
        ),
        RUN,
        "rows have no value in the site column 'ward': fill it in, or remove these rows",
    ),
    "regression without a target": (
        regression(""),
        RUN,
        "FedMixedRegressor learns a target: name its column in [data]",
    ),
    "target that does not exist": (regression('target = "cost"'), RUN, "no column 'cost' for the target"),
    "target with gaps": (
        both(
            regression('target = "dose"'),
            frame(lambda table: table.assign(dose=table["dose"].where(table["age"] > 50))),
        ),
        RUN,
        "the target 'dose' is missing in",
    ),
    "survival with one target of text": (
        both(
            replaced('"FedPCADetector"', '"FedCoxRegression"'),
            replaced("[data]", '[data]\ntarget = ["age", "dose"]'),
            *(frame(lambda t: t.assign(ward=t["age"], dose="yes"), f"{n}.csv") for n in "abc"),
        ),
        RUN,
        "the target 'dose' holds text, and FedCoxRegression learns numbers: name another column, with 1 for an event",
    ),
    "target of text": (
        both(regression('target = "dose"'), *(frame(lambda t: t.assign(dose="high"), f"{n}.csv") for n in "abc")),
        RUN,
        "the target 'dose' holds text, and FedMixedRegressor learns numbers: name another column",
    ),
    "output folder that is used": (
        nothing,
        ["run", "hospitals.toml"],
        "is used already: choose another folder with --out",
    ),
    "output below a file": (nothing, [*RUN, "--out", "a.csv/x"], "a.csv/x cannot be made"),
    "--detach without a kit": (nothing, [*RUN, "--detach"], "--detach needs --kit"),
    "secure sums with what needs single replies": (
        lambda folder: wrote(
            "study.toml",
            STUDY.replace("FedStandardScaler", "FedTabularEncoder") + "[federation]\nsecure_sum = true\n",
        )(folder),
        RUN,
        "FedTabularEncoder",
    ),
    "check of a bad study": (replaced("b.csv", "bb.csv"), ["check", "study.toml"], "bb.csv does not exist"),
    "check of an impossible model": (
        replaced('"FedPCADetector"', '"FedPCADetector"\nn_components = 7'),
        ["check", "study.toml"],
        "n_components=7 must be",
    ),
    "apply of no study": (
        nothing,
        ["apply", "none", "new.csv", "--out", "o.csv"],
        "no model file or study folder none",
    ),
    "apply of a table": (nothing, ["apply", "a.csv", "new.csv", "--out", "o.csv"], "a.csv is not a fedspan model"),
    "apply of a folder without a model": (
        lambda folder: (folder / "hospitals" / "model.fedspan").unlink(),
        APPLY,
        "hospitals has no model.fedspan: it is not an output folder of 'fedspan run', or the run has not ended",
    ),
    "apply of a damaged model": (
        wrote("hospitals/model.fedspan", b"PK\x03\x04x"),
        APPLY,
        "is not a fedspan model, or is damaged",
    ),
    "apply to no table": (nothing, ["apply", "hospitals", "none.csv", "--out", "o.csv"], "none.csv does not exist"),
    "apply to an empty table": (wrote("new.csv", ""), APPLY, "new.csv is empty"),
    "apply to a header": (wrote("new.csv", "age;dose;pulse;ward\n"), APPLY, "new.csv has no rows"),
    "apply to other columns": (
        wrote("new.csv", "age;ward\n1;A\n"),
        APPLY,
        "new.csv lacks columns 'dose' and 'pulse', which the model needs; it has 'age' and 'ward'",
    ),
    "apply without --out": (nothing, ["apply", "hospitals", "new.csv"], "required: --out"),
    "apply to an unknown format": (nothing, [*APPLY[:-1], "out.docx"], "--out out.docx must end in .csv or .parquet"),
    "apply into no folder": (nothing, [*APPLY[:-1], "no/out.csv"], "must be a file in a folder that exists"),
    "apply onto its rows": (nothing, [*APPLY[:-1], "new.csv"], "is the table of the new rows: choose another file"),
    "init without files": (nothing, ["init"], "required: FILE; 'fedspan init --help'"),
    "init of no file": (nothing, ["init", "none.csv"], "study.toml exists in this folder already: rename or remove it"),
    "init of a missing file": (
        lambda folder: (folder / "study.toml").unlink(),
        ["init", "none.csv"],
        "the file none.csv does not exist",
    ),
    "init of one file twice": (
        lambda folder: (folder / "study.toml").unlink(),
        ["init", "a.csv", "./a.csv"],
        "is named twice: each site has its own file",
    ),
    "init of an unknown kind": (
        both(lambda folder: (folder / "study.toml").unlink(), wrote("a.sas", "x")),
        ["init", "a.sas"],
        "tables are read from .csv",
    ),
    "init of an empty table": (
        both(lambda folder: (folder / "study.toml").unlink(), wrote("a.csv", "age,dose\n")),
        ["init", "a.csv", "b.csv"],
        "a.csv has no rows",
    ),
    "init of identifiers": (
        both(
            lambda folder: (folder / "study.toml").unlink(),
            wrote("a.csv", "name\n" + "\n".join(f"p{i}" for i in range(50))),
        ),
        ["init", "a.csv"],
        "no column to learn from is left in 'a.csv'",
    ),
    "table that is a folder": (
        both(replaced("b.csv", "d.csv"), lambda folder: (folder / "d.csv").mkdir()),
        RUN,
        "d.csv is a folder: name a file in it",
    ),
    "model without a name": (replaced('name = "FedPCADetector"', ""), RUN, "[model] the name is missing, and must be"),
    "no feature": (replaced("[data]", "[data]\nfeatures = []"), RUN, "features = [] names no column: name some"),
    "verbose as a word": (replaced('"FedPCADetector"', '"FedPCADetector"\nverbose = "yes"'), RUN, "verbose='yes' must"),
    "many other columns": (
        wrote("b.csv", ",".join(f"c{i}" for i in range(300)) + "\n" + ",".join("1" * 300) + "\n"),
        RUN,
        "and 293 more: name the columns that all sites have in 'features'",
    ),
    "survival without an event": (
        both(replaced('"FedPCADetector"', '"FedCoxRegression"'), replaced("[data]", '[data]\ntarget = "dose"')),
        RUN,
        "FedCoxRegression learns a time and an event: name their columns in [data], such as target = ['days', 'died']",
    ),
    "survival with an event of text": (
        both(
            replaced('"FedPCADetector"', '"FedCoxRegression"'),
            replaced("[data]", '[data]\ntarget = ["dose", "event"]'),
            *(frame(lambda table: table.assign(event="yes"), f"{name}.csv") for name in "abc"),
        ),
        RUN,
        "holds text, and FedCoxRegression learns numbers",
    ),
    "regression on text": (
        both(
            replaced('"FedPCADetector"', '"FedLinearRegression"'),
            replaced('[[preprocess]]\nname = "FedStandardScaler"\n', ""),
            replaced("[data]", '[data]\ntarget = "age"'),
            *(frame(lambda t: t.assign(dose="high"), f"{n}.csv") for n in "abc"),
        ),
        RUN,
        "holds text or times, not numbers: name it in 'categorical' of the model, or let FedTabularEncoder",
    ),
    "regression of two targets": (
        both(
            replaced('"FedPCADetector"', '"FedLinearRegression"'),
            replaced("[data]", '[data]\ntarget = ["age", "dose"]'),
        ),
        RUN,
        "FedLinearRegression learns one target: name its column alone in [data]",
    ),
    "image of another size": (
        replaced('"FedPCADetector"', '"FedPCADetector"\n[report]\nimage = [28, 28]'),
        RUN,
        "image = [28, 28] has 784 pixels, and the rows have 2 columns: correct it",
    ),
    "apply at an unknown site": (nothing, [*APPLY, "--site", "east"], "--site east must be a site that the model"),
    "init of a folder": (
        lambda folder: (folder / "study.toml").unlink(),
        ["init", "hospitals"],
        "hospitals is a folder: name the files in it",
    ),
    "init of tables of different kinds": (
        both(lambda folder: (folder / "study.toml").unlink(), wrote("a.csv", "x,y\n1,2\n2,3\n")),
        ["init", "a.csv", "b.csv"],
        "no column is in all of 'a.csv' and 'b.csv': rename columns that mean the same",
    ),
    "gateway with a table": (
        nothing,
        ["gateway", "a.csv"],
        "a.csv is not an exported detector, or is damaged (ValueError): write one by detector.export",
    ),
    "report of a table": (nothing, ["report", "a.csv"], "name the output folder of 'fedspan run', or a file that"),
    "demo with a bad seed": (nothing, ["demo", "--seed", "-1"], "seed=-1 must be a whole number of at least 0"),
    "demo onto a file": (nothing, ["demo", "--out", "a.csv"], "a.csv cannot be made: File exists; choose another"),
    "paper onto a file": (
        nothing,
        ["reproduce", "fedpca", "--quick", "--out", "a.csv"],
        "a.csv cannot be made: File exists; choose another folder with --out",
    ),
    "report of no run": (lambda folder: (folder / "x").mkdir(), ["report", "x"], "x is not the folder of a run"),
    "audit of no run": (lambda folder: (folder / "x").mkdir(), ["audit", "x"], "x is not the folder of a run"),
    "decimal commas between commas": (
        replaced("[data]", '[data]\ndecimal = ","'),
        RUN,
        "decimal=',' also separates the fields of a.csv: state another separator",
    ),
    "unknown mark of thousands": (
        replaced("[data]", '[data]\nthousands = "x"'),
        RUN,
        "thousands='x' must be ',', '.', an apostrophe or a space",
    ),
    "separator that is not there": (
        replaced("[data]", '[data]\nseparator = ";"'),
        RUN,
        "state what separates its fields, for example separator = ','",
    ),
    "encoding of another file": (
        both(
            replaced("[data]", '[data]\nencoding = "ascii"'),
            lambda folder: (folder / "a.csv").write_text("age,döse\n1,2\n", encoding="utf-8"),
        ),
        RUN,
        "it is not text in 'ascii'; state its encoding, for example encoding = 'utf-8'",
    ),
    "a table that is there twice": (
        lambda folder: (folder / "study.toml").open("a").write('\n[model]\nname = "FedPCA"\n'),
        RUN,
        "is not valid TOML: a table or key is there twice, at line",
    ),
    "text in UTF-16": (
        lambda folder: (folder / "b.csv").write_text("age,dose\n1,2\n", encoding="utf-16"),
        RUN,
        "b.csv is text in UTF-16: state its encoding, encoding = 'utf-16'",
    ),
    "a path of Windows": (replaced("b.csv", "C:\\daten\\b.csv"), RUN, "; in paths write / instead, or put them in"),
    "a table of two columns of numbers": (
        lambda folder: [rows(0, 300)[["age", "dose"]].to_csv(folder / f"{name}.csv", index=False) for name in "abc"],
        ["describe", "study.toml", "--crosstab", "age", "dose"],
        "different values, and a table has at most 10,000 cells: name columns of few values",
    ),
    "archive of one row": (
        both(replaced("b.csv", "b.npz"), lambda folder: np.savez(folder / "b.npz", X=np.ones(3))),
        RUN,
        "must hold an array X of rows and columns of numbers; it holds X (3,)",
    ),
    "run of a table": (nothing, ["run", "a.csv"], "; name a TOML file"),
    "unknown paper": (nothing, ["reproduce", "fedx"], "invalid choice: 'fedx'"),
}


def test_there_are_at_least_forty() -> None:
    assert len(BAD) >= 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", sorted(BAD))
def test_a_bad_input_is_one_sentence(
    what: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, command, sentence = BAD[what]
    folder = tmp_path / "work"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    change(folder)
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("fedspan: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert "Traceback" not in error
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before
