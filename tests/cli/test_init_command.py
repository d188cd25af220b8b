"""``fedspan init``: a study file from a look at the data."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedspan.cli import main
from tests.cli.hospital_files import DIALECT, rows, write_hospitals


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(*files):
    assert main(["init", *files]) == 0
    with open("study.toml", "rb") as file:
        return tomllib.load(file)


def test_the_dialect_the_columns_and_a_model_are_found(folder):
    study = written(*write_hospitals(folder))
    assert study["data"] == {
        "sites": {"north": "north.csv", "south": "south.csv", "west": "west.csv"},
        "separator": ";",
        "decimal": ",",
        "drop": ["patient"],
    }
    assert [step["name"] for step in study["preprocess"]] == ["FedTabularEncoder"]
    assert study["model"]["name"] == "FedPCADetector"
    text = (folder / "study.toml").read_text()
    assert "#   ward     text, 3 different values" in text
    assert "#   pulse    integer, 12 missing cells" in text


def test_an_existing_study_is_not_replaced(folder, capsys):
    files = write_hospitals(folder)
    (folder / "study.toml").write_text("mine")
    assert main(["init", *files]) == 2
    assert "exists in this folder already" in capsys.readouterr().err
    assert (folder / "study.toml").read_text() == "mine"


def test_files_in_different_dialects_state_their_own(folder):
    rows(0).to_csv("a.csv", **DIALECT)
    rows(1).assign(ward="B\u00e4r").to_csv("b.csv", **DIALECT, encoding="cp1252")
    rows(2).to_csv("c.csv", index=False)
    rows(3).to_parquet("d.parquet")
    rows(4).assign(age=60, dose=3).to_csv("e.csv", **DIALECT)  # shows no decimals
    study = written("a.csv", "b.csv", "c.csv", "d.parquet", "e.csv")
    assert study["data"]["separator"] == ";"
    assert study["data"]["sites"]["c"] == {"file": "c.csv", "separator": ",", "decimal": "."}
    assert study["data"]["sites"]["b"] == {"file": "b.csv", "encoding": "cp1252"}
    assert study["data"]["sites"]["e"] == "e.csv"
    assert main(["run", "study.toml"]) == 0


def test_a_decimal_comma_in_one_file_leaves_the_commas_of_the_others(folder):
    rows(0).to_csv("a.csv", index=False)
    rows(1).to_csv("b.csv", index=False)
    rows(2).to_csv("c.csv", **DIALECT)
    study = written("a.csv", "b.csv", "c.csv")
    assert study["data"]["sites"]["c"] == {"file": "c.csv", "separator": ";", "decimal": ","}
    assert main(["run", "study.toml"]) == 0


def test_one_file_with_a_column_of_sites(folder):
    frame = pd.concat([rows(seed).assign(hospital=name) for seed, name in enumerate("abc")])
    frame.to_csv("all.csv", index=False)
    study = written("all.csv")
    assert (study["data"]["file"], study["data"]["site_column"]) == ("all.csv", "hospital")
    assert main(["run", "study.toml"]) == 0


def test_what_is_no_feature_is_left_out_with_its_reason(folder):
    for seed, name in enumerate("ab"):
        frame = rows(seed).assign(label=np.arange(80) % 2, day="2026-01-05", visit_id=np.arange(80) + 100 * seed)
        (frame if seed else frame.assign(extra=1.0)).to_csv(f"{name}.csv", index=False)
    data = written("a.csv", "b.csv")["data"]
    assert data["label"] == "label"
    assert data["drop"] == ["patient", "day", "visit_id", "extra"]
    text = (folder / "study.toml").read_text()
    assert "left out: 1 of 2 files lack it" in text
    assert "left out: times of new rows would all be unusual" in text
    assert main(["run", "study.toml"]) == 0


def test_addresses_are_no_dates_and_seconds_since_1970_are_times(folder):
    frame = rows(0).assign(
        address=[f"10.0.{i % 7}.{i}" for i in range(80)], ts=1.7e9 + np.arange(80.0), time=np.arange(80.0) % 9
    )
    frame.to_csv("a.csv", index=False)
    rows(1).assign(address="10.1.2.3", ts=1.7e9, time=3.0).to_csv("b.csv", index=False)
    data = written("a.csv", "b.csv")["data"]
    assert data["drop"] == ["patient", "address", "ts"]
    lines = {line.split()[1]: line for line in (folder / "study.toml").read_text().splitlines() if "left out" in line}
    assert "nearly every row has a value of its own" in lines["address"]
    assert "times of new rows would all be unusual" in lines["ts"]


def test_files_of_one_name_in_different_folders(folder):
    for seed, name in enumerate(("north", "south")):
        (folder / name).mkdir()
        rows(seed).to_csv(f"{name}/rows.csv", index=False)
    study = written("north/rows.csv", "south/rows.csv")
    assert study["data"]["sites"] == {"north-rows": "north/rows.csv", "south-rows": "south/rows.csv"}


def test_files_and_folders_of_one_name_have_different_sites(folder):
    for year in ("2023", "2024"):
        (folder / year / "ward").mkdir(parents=True)
        rows(int(year)).to_csv(folder / year / "ward" / "a.csv", index=False)
    sites = written("2023/ward/a.csv", "2024/ward/a.csv")["data"]["sites"]
    assert sites == {"2023-ward-a": "2023/ward/a.csv", "2024-ward-a": "2024/ward/a.csv"}


def test_units_empty_columns_and_names_of_two_lines(folder):
    table = rows(0).assign(empty=None, mass=[f"{k + 0.5} kg" for k in range(len(rows(0)))], room="3B")
    table = table.rename(columns={"dose": "dose\n(mg)"})
    table.to_csv("a.csv", index=False)
    table.assign(pulse=["low", "high"] * (len(table) // 2) + ["low"] * (len(table) % 2)).to_csv("b.csv", index=False)
    study = written("a.csv", "b.csv")
    assert {"empty", "mass"} <= set(study["data"]["drop"])
    text = (folder / "study.toml").read_text()
    assert "left out: it is empty" in text
    assert "left out: numbers with 'kg': take it out of the cells" in text
    assert "#   dose (mg) " in text
    assert "numbers in 'a.csv'" in text


@pytest.mark.parametrize("name", ["Haus", "hospital_id", "Standort", "Name der Klinik", "Device"])
def test_a_column_named_like_one_of_sites_is_taken_before_others(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"sex": ["f", "m"] * 20, "age": np.arange(40) * 1.5, name: ["x"] * 25 + ["y"] * 15})
    table.to_csv("all.csv", index=False)
    assert main(["init", "all.csv"]) == 0
    assert tomllib.loads(Path("study.toml").read_text())["data"]["site_column"] == name
    assert "guess" not in Path("study.toml").read_text() + capsys.readouterr().out


def test_a_guess_at_the_column_of_sites_says_that_it_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"sex": ["f", "m"] * 20, "age": np.arange(40) * 1.5, "ward": ["x"] * 25 + ["y"] * 15})
    table.to_csv("all.csv", index=False)
    assert main(["init", "all.csv"]) == 0
    assert "site_column = \"sex\"  # a guess; or 'ward'" in Path("study.toml").read_text()
    assert "'sex' is a guess, and 'site_column' in study.toml may name another" in capsys.readouterr().out


def test_words_among_numbers_are_counted_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("age;dose\n" + "20;1,5\n" * 30 + "unknown;1,5\n<18;2,5\n")
    assert main(["init", "a.csv"]) == 0
    text = Path("study.toml").read_text()
    assert "numbers but for 2 cells: name their words in 'missing'" in text
    assert "unknown" not in text
