"""Owners' rules hold for descriptions: few rows and single values leave a site only where its owner allows it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ..owner.owner_desk import NUMBERS, OFFER, Desk

FEW = "only where its numbers are about 5 rows or more"
NONE = {"by": -1, "groups": np.array([], dtype=str)}
COLUMNS = {"columns": np.array([0, 1])}
SUMS, EXTREMES, PAIRS = "describe.group_sums", "describe.extremes", "describe.pair_sums"


def table(few=0):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[: 60 - few if few else 0, 1] = np.nan
    return pd.DataFrame(rows, columns=["a", "b"]).assign(sex=["f"] * 57 + ["m"] * 3)


@pytest.fixture
def desk(tmp_path):
    opened = Desk(tmp_path / "a", frame=table())
    yield opened
    opened.worker.close()


def test_groups_of_few_rows_are_single_rows(desk):
    payload = {**COLUMNS, "centre": np.zeros((1, 2)), **NONE}
    assert desk.ask(SUMS, payload=payload)["rows"].tolist() == [60]
    by_sex = {**COLUMNS, "centre": np.zeros((3, 2)), "by": 2, "groups": np.array(["f", "m"])}
    assert FEW in desk.ask(SUMS, run="r 2", payload=by_sex)
    inner = {f"with {key}": value for key, value in by_sex.items()}
    offer = {"what": SUMS, "session": "r 3/0/x", **NUMBERS, **inner}
    assert FEW not in str(desk.ask(OFFER, run="r 3", payload=offer))  # a secure sum is about the rows of all sites


def test_columns_of_few_values_are_single_rows(tmp_path):
    desk = Desk(tmp_path / "a", frame=table(few=3))
    assert FEW in desk.ask(SUMS, payload={**COLUMNS, "centre": np.zeros((1, 2)), **NONE})
    assert FEW in desk.ask(PAIRS, run="r 2", payload={**COLUMNS, "centre": np.zeros(2)})
    alone = {"columns": np.array([0]), "centre": np.zeros((1, 1)), **NONE}
    assert desk.ask(SUMS, run="r 3", payload=alone)["n"].tolist() == [[60]]
    desk.worker.close()


def test_rows_in_no_listed_group_are_counted(desk):
    """The sums of all rows less those of the women are the sums over the three men, whom the request does not name."""
    women = {**COLUMNS, "centre": np.zeros((2, 2)), "by": 2, "groups": np.array(["f"])}
    assert FEW in desk.ask(SUMS, payload=women)
    counted = {"listed": "", "sizes": np.array([0]), "columns": np.array([0]), "by": 2, "groups": np.array(["f"])}
    assert FEW in desk.ask("describe.category_counts", run="r 2", payload=counted)


def test_rows_in_which_one_column_alone_is_missing_are_counted(tmp_path):
    """In one reply: the sum of b, less that over rows that have a, is b in the one row without a."""
    frame = table()
    frame.loc[7, "a"] = np.nan
    whole = Desk(tmp_path / "a", 'steps = ["summaries", "single rows"]', frame=frame)
    payload = {**COLUMNS, "centre": np.zeros(2)}
    sums = whole.ask(PAIRS, payload=payload)["sums"]
    assert sums[1, 1] - sums[1, 0] == pytest.approx(frame["b"][7])  # what leaves where the owner allows rows
    whole.worker.close()
    (tmp_path / "b").mkdir()
    desk = Desk(tmp_path / "b" / "a", frame=frame)
    assert FEW in desk.ask(PAIRS, payload=payload)
    desk.worker.close()


@pytest.mark.parametrize(
    ("present", "allowed"), [(60, True), (30, True), (57, False), (3, False), (1, False), (59, False)]
)
def test_products_over_rows_without_gaps_are_of_few_rows_where_few_have_gaps_or_none(tmp_path, present, allowed):
    """The sums over the one row that has both columns were that row."""
    frame = table()
    frame.loc[present:, "b"] = np.nan
    desk = Desk(tmp_path / "a", frame=frame)
    payload = {**COLUMNS, "centre": np.zeros(2), "scale": np.ones(2), "largest": 9.0, **NONE}
    found = desk.ask("describe.group_products", payload=payload)
    desk.worker.close()
    assert found["n"].tolist() == [present] if allowed else FEW in found


@pytest.mark.parametrize(("complete", "allowed"), [(60, True), (30, True), (57, False), (1, False)])
def test_rows_that_a_regression_leaves_out_are_counted(tmp_path, complete, allowed):
    """The sums over one complete row were that row, and so was what the sums over all rows but one left over."""
    frame = table()[["a", "b"]].assign(y=np.arange(60.0))
    frame.loc[complete:, "b"] = np.nan
    desk = Desk(tmp_path / "a", 'steps = ["summaries"]', frame, 'target = "y"')
    payload = {"drop": True, "numeric": True}
    found = desk.ask("regression.column_sums", payload=payload)
    everything = desk.ask("regression.column_sums", run="r 2", payload={"drop": False, "numeric": True})
    desk.worker.close()
    assert found["n"] == complete if allowed else FEW in found
    assert everything["n"] == 60


@pytest.mark.parametrize("step", ["regression.glm_start", "regression.glm_sums", "regression.squared_scores"])
def test_a_list_of_classes_selects_no_rows(tmp_path, step):
    """With the classes of two rows as its list, the sums were those of these rows."""
    desk = Desk(tmp_path / "a", 'steps = ["summaries"]', table()[["a", "b"]].assign(y=np.arange(60.0)), 'target = "y"')
    about = {"regression.glm_start": {"level": 0.0}, "regression.glm_sums": {"coef": np.zeros(2)}}
    scores = {"coef": np.zeros(2), "level": 0.0, "meat": "HC0", "bread": np.eye(2)}
    families = ["binomial"] if step == "regression.squared_scores" else ["binomial", "multinomial"]
    for place, family in enumerate(families):
        payload = {**COX, "family": family, "classes": np.array([57.0, 58.0]), **about.get(step, scores)}
        found = desk.ask(step, run=f"r {place}", payload=payload)
        assert isinstance(found, dict), found
        assert not any(np.any(found[name]) for name in set(found) - {"n", "bad"})
    desk.worker.close()


def test_a_scale_of_zero_leaves_no_single_row_out(desk):
    """0 / 0 is a gap: the sums over all rows, less those over the rows with another value, were that row."""
    guessed = table()["b"][11]
    payload = {**COLUMNS, "centre": np.array([0.0, guessed]), "scale": np.array([1.0, 0.0]), "largest": 9.0, **NONE}
    assert FEW in desk.ask("describe.group_products", payload=payload)


def test_the_smallest_and_largest_values_need_an_owner_who_allows_rows(desk, tmp_path):
    refused = desk.ask(EXTREMES, payload={**COLUMNS, **NONE})
    assert "does not allow step 'describe.extremes'" in refused
    (tmp_path / "b").mkdir()
    open_desk = Desk(tmp_path / "b" / "a", 'steps = ["summaries", "single rows"]', frame=table())
    assert open_desk.ask(EXTREMES, payload={**COLUMNS, **NONE})["some"].all()
    open_desk.worker.close()


def test_sites_are_no_groups_in_a_secure_sum(desk):
    inner = {
        "with columns": np.array([0]),
        "with centre": np.zeros((2, 1)),
        "with by": -2,
        "with groups": np.array(["a"]),
    }
    refused = desk.ask(OFFER, payload={"what": SUMS, "session": "r/0/x", **NUMBERS, **inner})
    assert "not a group of its own in a secure sum" in str(refused)


def survivors(**last):
    """Return 60 rows with events at 12 times, but for the last row's time or event."""
    rows = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(rows, columns=["a", "b"]).assign(time=np.repeat(np.arange(1.0, 13.0), 5), event=1)
    for name, value in last.items():
        frame.loc[59, name] = value
    return frame


COX = {"intercept": False, "offset": -1, "effects": np.array([], dtype=str), "drop": False, "centre": np.zeros(2)}
COX |= {"factor": np.eye(2), "kept": np.ones(2, dtype=bool)}


@pytest.mark.parametrize(
    ("last", "grid", "few"),
    [
        ({}, [12.0], False),
        ({}, [1.0, 12.0], False),
        ({"time": 20.0}, [12.0], True),  # all rows less those with events
        ({"time": 20.0}, [12.0, 20.0], True),
        ({"event": 0}, [12.0], True),
        ({"event": 0, "time": 0.5}, [1.0, 12.0], True),  # leaves before all
    ],
)
@pytest.mark.parametrize("step", ["event_moments", "cox_setup", "cox_sums"])
def test_sums_over_the_events_of_one_time_are_single_rows(tmp_path, step, last, grid, few):
    """With a weight for each time of the grid, the sum over events was the covariates of the row with that event."""
    desk = Desk(tmp_path / "a", 'steps = ["summaries"]', survivors(**last), 'target = ["time", "event"]')
    m = len(grid)
    more = {"coef": np.zeros(2), "at_risk": np.zeros(m), "at_event": np.zeros(m)} if step == "cox_sums" else {}
    more = {"weights": np.eye(m)} if step == "event_moments" else more
    found = desk.ask(f"survival.{step}", payload={"grid": np.array(grid), **more, **COX})
    assert (FEW in str(found)) == few, found
    desk.worker.close()


def test_who_leaves_without_an_event_is_the_difference_of_two_sums(tmp_path):
    frame = survivors(event=0)
    rules = 'steps = ["summaries", "single rows"]'
    desk = Desk(tmp_path / "a", rules, frame, 'target = ["time", "event"]')
    zeros = {"coef": np.zeros(2), "at_risk": np.zeros(1), "at_event": np.zeros(1)}
    found = desk.ask("survival.cox_sums", payload={"grid": np.array([12.0]), **zeros, **COX})
    np.testing.assert_allclose((found["S1"] - found["E1"])[0], frame.loc[59, ["a", "b"]].astype(float))
    desk.worker.close()


def test_weights_of_a_regression_may_single_out_a_row_as_the_page_says(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[7, 0] = 3.0
    frame = pd.DataFrame(rows, columns=["a", "b"]).assign(count=np.arange(60) % 3)
    desk = Desk(tmp_path / "a", 'steps = ["summaries"]', frame, 'target = "count"')
    form = {"intercept": True, "offset": -1, "effects": np.array([], dtype=str), "drop": False, "centre": np.zeros(2)}
    form |= {"factor": np.eye(3), "kept": np.ones(3, dtype=bool), "coef": np.array([0.0, 90.0, 0.0])}
    found = desk.ask("regression.glm_sums", payload={"family": "poisson", "classes": np.array([], dtype=str), **form})
    desk.worker.close()
    assert isinstance(found, dict), found
    alone = [1.0, *rows[7]]
    np.testing.assert_allclose(found["information"][0] / found["information"][0, 0], alone)


def test_counts_of_guessed_names_may_be_of_one_row_as_the_page_says(tmp_path):
    frame = table().assign(patient=[f"p{i}" for i in range(60)])
    desk = Desk(tmp_path / "a", 'steps = ["summaries"]', frame)
    names = {"first_names": np.array(["p58"]), "second_names": np.array(["f", "m"])}
    found = desk.ask("describe.cross_counts", payload={"first": 3, "second": 2, **names})
    assert found["counts"].tolist() == [[0, 1]]
    desk.worker.close()
