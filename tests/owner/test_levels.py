"""Levels: what requests see of a site's rows by its owner's choice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.errors import InputError
from fedspan.federation.site.transforms import Transform
from fedspan.owner.moment_rows import moment_rows, problems
from fedspan.owner.published_rows import FewRowsChangedError, PublishedRows
from fedspan.owner.site_file import SiteFileError
from fedspan.sums.row_moments import unpacked
from fedspan.sums.row_transforms import standardize
from tests.engines.remote.people import authority, user

from .owner_desk import NUMBERS, OFFER, Desk, Wires, numbers

AGGREGATE = 'level = "aggregate"'


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path / "a", AGGREGATE, numbers(60, "abcy"), 'target = "y"')


def test_requests_see_the_moments_and_no_row(desk):
    rows, seen = numbers(60, "abcy"), desk.owned.site
    own, drawn = rows.to_numpy(), np.column_stack([seen.X, seen.y])
    np.testing.assert_allclose(drawn.sum(axis=0), own.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(drawn.T @ drawn, own.T @ own, rtol=1e-12)
    apart = np.linalg.norm(drawn[:, None] - own[None], axis=2).min()
    assert apart > 0.01  # of sixty draws none comes near a row
    assert desk.owned.site.task is None


def test_a_restart_changes_nothing_and_another_site_has_another_key(tmp_path):
    desk = Desk(tmp_path / "a", AGGREGATE)
    first = desk.owned.site.X
    desk.open()
    np.testing.assert_array_equal(desk.owned.site.X, first)
    assert not np.allclose(Desk(tmp_path / "b", AGGREGATE, name="b").owned.site.X, first)


def test_what_moments_decide_is_exact(tmp_path):
    desks = [Desk(tmp_path / name, AGGREGATE, numbers(40, "abcd", seed), name=name) for seed, name in enumerate("abc")]
    fed = RemoteFederation(Wires(*desks), user(), authority(["a", "b", "c"]), 1)
    pooled = np.concatenate([numbers(40, "abcd", seed).to_numpy() for seed in range(3)])
    scaler, pca = fs.FedStandardScaler().fit(fed), fs.FedPCA(2).fit(fed)
    np.testing.assert_allclose(scaler.mean_, pooled.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(scaler.scale_, pooled.std(axis=0), rtol=1e-10)
    expected = np.linalg.eigh(np.cov(pooled.T))[0][::-1][:2]
    np.testing.assert_allclose(pca.explained_variance_, expected, rtol=1e-9)


ROUTES = {
    "far centre": ("clustering.cluster_means", {"centres": np.zeros((1, 2, 3)), "wanted": np.ones((1, 2), dtype=bool)}),
    "quantile search": ("sums.counts_between", {"low": np.zeros(3, np.uint64), "high": np.ones(3, np.uint64)}),
    "Fourier frequencies": ("landmarks.characteristic", {"W": np.ones((3, 5))}),
    "narrow kernel": ("landmarks.pull", {"Y": np.zeros((1, 3)), "gamma": 1e6}),
    "truncation": ("few_shot.start_own_product", {"U": np.eye(3), "alpha": 1.0, "intercept": False, "parts": 1}),
}


@pytest.mark.parametrize("route", ROUTES)
def test_steps_that_select_rows_are_not_admitted(desk, route):
    step, payload = ROUTES[route]
    assert f"does not allow step {step!r}" in desk.ask(step, payload=payload)


def test_transforms_that_are_not_affine_are_not_admitted(desk):
    for id, parameters in (
        ("mixed_regression.polynomial", {"degree": 3, "interactions": False}),
        ("sums.scores_as_verdicts", {"threshold": 0.0}),
    ):
        assert "does not allow the transform" in desk.ask(transforms=(Transform(id, parameters),))


def test_rounding_by_hostile_parameters_is_about_drawn_rows(desk):
    """A shift of 2^53 rounds every row to a multiple of two: a count of rows above a threshold, but of drawn ones."""
    shift = Transform.of(standardize, {"mean": np.full(3, 2.0**53), "scale": None})
    back = Transform.of(standardize, {"mean": np.full(3, -(2.0**53)), "scale": None})
    found = desk.ask(transforms=(shift, back))
    drawn = desk.owned.site.X - 2.0**53 + 2.0**53
    own = numbers(60, "abcy").to_numpy()[:, :3] - 2.0**53 + 2.0**53
    sums = next(value for key, value in found.items() if np.shape(value) == (3,))
    np.testing.assert_array_equal(sums, drawn.sum(axis=0))
    assert not np.array_equal(sums, own.sum(axis=0))


def test_tables_that_differ_in_few_rows_are_not_both_answered(tmp_path):
    desk, more = Desk(tmp_path / "a", AGGREGATE, numbers(60)), numbers(66)

    def reopen(frame):
        frame.to_csv(tmp_path / "a" / "rows.csv", index=False)
        desk.open()

    for rows in (61, 64):
        with pytest.raises(InputError, match=f"differ from those of earlier answers in {rows - 60} rows"):
            reopen(more[:rows])
    reopen(more[:65])
    with pytest.raises(InputError, match="in 1 rows"):
        reopen(more)
    with pytest.raises(InputError, match="in 2 rows"):  # against the first table, not only the last
        reopen(more[:60].drop(index=[3, 4]))
    reopen(more[:60].sample(frac=1.0, random_state=0))  # the same rows in another order
    assert (tmp_path / "a" / "audit.rows").stat().st_mode & 0o077 == 0


def test_several_tables_together_leave_no_few_rows_over(tmp_path):
    """Any two of these differ in five rows or more; the third plus the fourth less the others is one row."""
    desk, more = Desk(tmp_path / "a", AGGREGATE, numbers(60)), numbers(72)

    def reopen(frame):
        frame.to_csv(tmp_path / "a" / "rows.csv", index=False)
        desk.open()

    reopen(more[:70])
    reopen(more[:65])
    with pytest.raises(InputError, match="all answers together would reveal 1 rows"):
        reopen(more.drop(index=[*range(60, 65), 71]))
    reopen(more.drop(index=range(65, 70)).iloc[:60])  # the first table again


def test_tables_with_other_columns_leave_no_few_rows_over_either(tmp_path):
    """Each table had a column that no other one had: they were compared by twos, and three gave the sum of one row."""
    rows, published = numbers(41, "abcd"), PublishedRows(tmp_path / "audit.rows")
    published.publish(rows[:20][["a", "b"]], 5)
    published.publish(rows[20:][["a", "c"]], 5)
    with pytest.raises(FewRowsChangedError, match="all answers together would reveal 1 rows"):
        published.publish(rows[:40][["a", "d"]], 5)  # the others less this one is the last row
    published.publish(rows[:36][["a", "d"]], 5)
    published.publish(rows[:40][["d"]], 4)


def test_columns_with_new_names_are_compared_all_the_same(tmp_path):
    """An owner whose export renamed its columns gave a row away: no table shared a name with an earlier one."""
    rows, published = numbers(61, "abc"), PublishedRows(tmp_path / "audit.rows")
    published.publish(rows[:60], 5)
    new = rows.rename(columns={"a": "Age", "b": "Dose", "c": "Weight"})[["Weight", "Age", "Dose"]]
    with pytest.raises(FewRowsChangedError, match="differ from those of earlier answers in 1 rows"):
        PublishedRows(tmp_path / "audit.rows").publish(new, 5)
    published.publish(new[:50], 5)
    with pytest.raises(FewRowsChangedError, match="in 2 rows"):
        published.publish(rows[1:51].rename(columns=str.upper), 5)
    flags = rows[:40] > 0
    published.publish(flags.astype(float).rename(columns=lambda name: f"flag {name}"), 5)  # two values: no other column
    published.publish(flags[::-1].astype(float).rename(columns=lambda name: f"mark {name}"), 5)


def test_a_running_site_keeps_its_moments_until_enough_rows_have_changed(tmp_path):
    desk, more = Desk(tmp_path / "a", AGGREGATE, numbers(60)), numbers(66)
    before = desk.owned.site.X
    more[:62].to_csv(tmp_path / "a" / "rows.csv", index=False)
    assert not desk.owned.refresh()
    assert desk.owned.site.X is before
    more.to_csv(tmp_path / "a" / "rows.csv", index=False)
    assert desk.owned.refresh()
    assert len(desk.owned.site) == 66


def test_a_table_with_other_columns_is_compared_in_those_that_it_shares(tmp_path):
    """One more row beside one more column, or one fewer, would be the difference of moments of the shared columns."""
    desk, more = Desk(tmp_path / "a", AGGREGATE, numbers(60, "abc")), numbers(70, "abcd")
    more.loc[:59, ["a", "b", "c"]] = numbers(60, "abc").to_numpy()

    def reopen(frame):
        frame.to_csv(tmp_path / "a" / "rows.csv", index=False)
        desk.open()

    for columns in (["a", "b", "c", "d"], ["a", "b"], ["c", "d", "a"]):
        with pytest.raises(InputError, match="in 1 rows"):
            reopen(more.loc[:60, columns])
    reopen(more.loc[:59, ["a", "b", "d"]])  # the same rows
    with pytest.raises(InputError, match="in 1 rows"):
        reopen(more.loc[:60, ["d"]])
    reopen(more.loc[:64])


def rare(frame):
    return frame.assign(a=(np.arange(60) == 7).astype(float))


def nearly_equal(frame):
    """The difference of a and c is 1 in one row, and 0 in all others."""
    return frame.assign(a=np.round(10 * frame["a"]), c=np.round(10 * frame["a"]) + (np.arange(60) == 7))


def nearly_opposite(frame):
    return frame.assign(a=np.arange(60) % 2, c=1 - np.arange(60) % 2 + (np.arange(60) < 3))


def nearly_a_sum(frame):
    return frame.assign(c=2 * frame["a"] - frame["b"] + 1e-3 * np.isin(np.arange(60), [3, 9]))


def dominated(frame):
    return frame.assign(a=np.where(np.arange(60) < 2, 1e4, frame["a"]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda frame: frame.assign(a="text"), "column 'a' holds no numbers"),
        (lambda frame: frame.assign(a=np.nan), "column 'a' has missing or infinite cells"),
        (rare, "column 'a' has one value in all but 1 rows"),
        (nearly_equal, "columns 'a' and 'c' differ by one number, or add up to one, in all but 1 rows"),
        (nearly_opposite, "columns 'a' and 'c' differ by one number, or add up to one, in all but 3 rows"),
        (nearly_a_sum, "column 'c' follows from the others in all but fewer than 5 rows"),
        (dominated, "column 'a' has nearly all of its spread in fewer than 5 rows"),
    ],
)
def test_columns_whose_moments_are_about_few_rows_are_named_to_the_owner(tmp_path, change, problem):
    with pytest.raises(InputError, match=problem):
        Desk(tmp_path / "a", AGGREGATE, change(numbers(60, "ab")))


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ('level = "open"', "level='open' must be one of"),
        (f'{AGGREGATE}\nsteps = ["pca"]', "steps has no effect at level = 'aggregate'"),
        ('level = "private"', r"needs a \[privacy\] section with strict = true"),
        ('level = "secure"\nsums_only = false', "means secure sums only"),
    ],
)
def test_levels_that_contradict_other_rules_are_refused(tmp_path, rules, problem):
    with pytest.raises(SiteFileError, match=problem):
        Desk(tmp_path / "a", rules)


def test_secure_sums_only_at_the_level_secure(tmp_path):
    desk = Desk(tmp_path / "a", 'level = "secure"')
    assert "allows secure sums only" in desk.ask()


SINGLE_SITES = {
    "combat.site_sums": {"names": np.array(["a", "b"]), "controls": -1},
    "atlases.batch_sizes": {"column": -1, "names": np.array(["a", "b"])},
    "atlases.begin": {
        "column": -1,
        "names": np.array(["a", "b"]),
        "sizes": np.ones(2),
        "steps": np.ones(2),
        "Y": np.zeros((2, 2)),
        "starts": 1,
        "theta": 1.0,
        "sigma": 1.0,
    },
}


@pytest.mark.parametrize("step", SINGLE_SITES)
def test_sums_that_show_single_sites_are_refused_at_the_level_secure(tmp_path, step):
    desk = Desk(tmp_path / "a", 'level = "secure"')
    assert "a sum shows single sites" in desk.ask(step, payload=SINGLE_SITES[step])
    named = Desk(tmp_path / "b", f'level = "secure"\nsteps = ["{step}"]', name="b")
    assert "a sum shows single sites" not in named.ask(step, payload=SINGLE_SITES[step])


def test_transforms_that_leave_one_site_in_a_sum_are_refused_at_the_level_secure(tmp_path):
    """A spread of 1e300 at all other sites would make the total the part of one."""
    form = {"features": np.array([0, 1]), "covariates": np.array([], dtype=np.int64), "mean": np.zeros(2)}
    form |= {"slopes": np.zeros((0, 2)), "shift": np.zeros((2, 2)), "spread": np.array([[1.0, 1.0], [1e300, 1e300]])}
    alone = Transform("combat.adjusted", {"names": np.array(["a", "b"]), **form})
    desk = Desk(tmp_path / "a", 'level = "secure"')
    inner = {"what": "sums.sums", "session": "r/0/x", **NUMBERS}
    assert "a sum shows single sites" in desk.ask(OFFER, payload=inner, transforms=(alone,))


@fs.step("levels.own")
def own_step(site, thing):
    return {"x": float(np.sum(site.X))}


def test_a_step_without_declared_types_runs_at_the_level_trusted_alone(tmp_path):
    trusted = Desk(tmp_path / "a", 'level = "trusted"')
    assert isinstance(trusted.ask("levels.own", payload={"thing": 1.0}), dict)
    named = Desk(tmp_path / "b", 'level = "secure"\nsteps = ["levels.own"]')
    assert "declare the types of all parameters" in named.ask("levels.own", payload={"thing": 1.0})


@pytest.mark.parametrize("shape", [(40, 3), (5, 8), (4, 3), (3, 1)])
def test_drawn_rows_have_the_moments_of_tables_of_every_shape(shape):
    rows = np.random.default_rng(0).normal(size=shape) + 3.0
    constant, twice = rows.copy(), rows.copy()
    constant[:, 0] = 2.0
    twice[:, -1] = twice[:, 0]
    for table in (rows, constant, twice):
        drawn = moment_rows(table, b"k")
        np.testing.assert_allclose(drawn.sum(axis=0), table.sum(axis=0), atol=1e-11)
        np.testing.assert_allclose(drawn.T @ drawn, table.T @ table, atol=1e-10)


def test_ordinary_tables_are_not_refused():
    rng = np.random.default_rng(0)
    for n, d in ((60, 5), (60, 30), (500, 20)):
        X = rng.normal(size=(n, d))
        X[:, 1] = X[:, 0] + 0.1 * X[:, 1]  # alike
        X[:, 2] = 2 * X[:, 0] - X[:, 1]  # in line, in every row
        X[:, 3] = rng.integers(0, 2, n)
        X[:, 4] = rng.lognormal(size=n)
        assert problems(pd.DataFrame(X), 5) == []


def test_who_knows_part_of_a_record_does_not_get_the_rest_from_moments():
    """Of as many columns as rows, some combination is one row alone: its known cells give that combination."""
    X = np.random.default_rng(0).normal(50.0, 10.0, size=(60, 80))
    shown = moment_rows(X, b"k")
    centred = shown - shown.mean(axis=0)
    known, wanted, person = slice(0, 70), slice(70, 80), X[7]
    alone = np.linalg.pinv(centred[:, known], rcond=1e-10).T @ (person - shown.mean(axis=0))[known]
    found = shown.mean(axis=0)[wanted] + alone @ centred[:, wanted]
    np.testing.assert_allclose(found, person[wanted], atol=1e-8)  # what the moments of such a table reveal
    assert "a combination that is nearly one row alone, for 60 of 60 rows" in problems(pd.DataFrame(X), 5)[0]
    few = X[:, :4].copy()
    few[7] = [90.0, 10.0, 95.0, 5.0]  # nowhere extreme by itself
    few[:, 3] = 100.0 - few[:, 2] + 1e-3 * few[:, 3]
    few[7, 3] = 80.0
    assert problems(pd.DataFrame(few), 5)


@pytest.mark.parametrize(("n", "d"), [(60, 6), (60, 18), (60, 30), (200, 60)])
@pytest.mark.parametrize("few", [2, 3, 4])
def test_no_combination_of_several_columns_is_about_few_rows(n, d, few):
    """Two wards and the beds of both agree in all but a few patients: beds less wards sums up these patients."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, d))
        special = rng.choice(n, few, replace=False)
        X[:, :2] = rng.random((n, 2)) < 0.3
        X[:, 2] = X[:, 0] + X[:, 1]
        assert problems(pd.DataFrame(X), 5) == []
        X[special, 2] += rng.integers(1, 3, few)
        shown = moment_rows(X, b"k")
        found = (shown[:, 2] - shown[:, 0] - shown[:, 1]) @ shown[:, 3:]
        weights = (X[:, 2] - X[:, 0] - X[:, 1])[special]
        np.testing.assert_allclose(found, weights @ X[special, 3:], atol=1e-9)  # what the moments reveal
        assert problems(pd.DataFrame(X), 5)


def test_groups_are_counted_as_the_transforms_show_them(tmp_path):
    """With the columns in another order, the same number names the patient in place of the ward."""
    patients = [f"p{i}" for i in range(40)]
    frame = pd.DataFrame({"ward": ["A", "B"] * 20, "patient": patients, "x": np.arange(40.0) + 0.25})
    desk = Desk(tmp_path / "a", 'level = "trusted"\nsteps = ["summaries"]', frame=frame)
    payload = {"columns": np.array([2]), "centre": np.zeros((2, 1)), "by": 0, "groups": np.array(["A"])}
    assert desk.ask("describe.group_sums", payload=payload)["n"].tolist() == [[20], [20]]
    one = {**payload, "groups": np.array(["p7"])}
    swapped = (Transform("sums.in_order", {"names": np.array(["patient", "ward", "x"])}),)
    assert "about fewer" in desk.ask("describe.group_sums", 1, payload=one, transforms=swapped)
    ward = {**payload, "by": 1}
    assert desk.ask("describe.group_sums", 2, payload=ward, transforms=swapped)["n"].tolist() == [[20], [20]]


def test_a_least_set_of_one_row_refuses_no_column():
    assert problems(numbers(60), 1) == []


def test_the_head_of_a_reply_of_sums_does_not_hold_the_number_of_rows(desk):
    assert isinstance(desk.ask(), dict)
    assert desk.found.head["rows"] == -1


def test_a_party_that_knows_columns_of_everyone_solves_for_one_of_zeros_and_ones(tmp_path):
    """What the owner's page states: sums of products with known numbers say which of these were added."""
    rng, n, names = np.random.default_rng(5), 36, ["age", "weight", "height", "dose"]
    known, smoker = rng.integers(200, 1800, size=(n, 4)), rng.integers(2, size=n)  # in tenths
    frame = pd.DataFrame(known / 10, columns=names).assign(smoker=smoker)
    desk = Desk(tmp_path / "a", AGGREGATE, frame)
    products = unpacked(desk.ask("pca.gram")["gram"])
    sums = np.rint(10 * products[:4, 4]).astype(np.int64)  # of the tenths of smokers
    halves, place = [], 2 ** (16 * np.arange(4, dtype=np.uint64))
    for part in np.split(known.astype(np.uint64) @ place, 2):
        keys = np.zeros(1, dtype=np.uint64)
        for key in part:
            keys = np.concatenate([keys, keys + key])
        halves.append(keys)
    wanted = sums.astype(np.uint64) @ place
    _, first, second = np.intersect1d(wanted - halves[0], halves[1], return_indices=True)
    found = [[*_bits(a, n // 2), *_bits(b, n // 2)] for a, b in zip(first, second, strict=True)]
    assert found == [smoker.tolist()]


def _bits(number, count):
    return [int(number) >> place & 1 for place in range(count)]
