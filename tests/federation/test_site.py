"""Sites: data, state and generators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError, MessageError
from fedspan.federation.site import site_data
from fedspan.federation.site.site_data import invented_values
from fedspan.federation.site.state import State


def test_a_site_takes_arrays_lists_memory_maps_and_frames(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "x.npy", X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for given in (X, X.tolist(), np.load(tmp_path / "x.npy", mmap_mode="r"), frame):
        np.testing.assert_array_equal(fs.Site("s", given).X, X)
    site = fs.Site("s", frame)
    assert site.feature_names == ("a", "b")
    site.frame.iloc[0, 0] = 99.0  # writes to a copy
    pd.testing.assert_frame_equal(site.frame, frame)
    assert frame.iloc[0, 0] == 0.0
    assert fs.Site("s", X).feature_names is None


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    site = fs.Site("s", np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(site.X, np.memmap)


def test_batches_cover_all_rows_in_order():
    X, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    site = fs.Site("s", X, y=y, task=y + 1)
    for rows in (1, 2, 5, 9):
        parts = list(site.batches(rows))
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), X)
        np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
        np.testing.assert_array_equal(np.concatenate([part.task for part in parts]), y + 1)
    with pytest.raises(InputError, match="rows=0"):
        next(site.batches(0))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("", np.eye(2)), "non-empty string"),
        ((3, np.eye(2)), "non-empty string"),
        (("\ud800", np.eye(2)), "plain text"),
        (("s", 5.0), "must have rows"),
        (("s", np.eye(2), [1]), r"y has shape \(1,\), but X has 2 rows"),
        (("s", np.eye(2), None, [1, 2, 3]), "task has shape"),
    ],
)
def test_bad_sites_are_refused(arguments, reason):
    with pytest.raises(InputError, match=reason):
        fs.Site(*arguments)


def test_sparse_matrices_are_refused():
    from scipy.sparse import csr_array

    with pytest.raises(InputError, match="sparse"):
        fs.Site("s", csr_array(np.eye(2)))


def test_state_and_rng_exist_only_inside_a_step():
    site = fs.Site("s", np.eye(2))
    with pytest.raises(InputError, match="only inside a step"):
        _ = site.state
    with pytest.raises(InputError, match="only inside a step"):
        _ = site.rng


def test_what_goes_into_state_is_copied_and_what_comes_out_may_be_changed():
    base = {"w": np.zeros(2)}
    state = State(base)
    given = np.ones(2)
    state["new"] = given
    given[0] = 5.0
    assert state["new"].tolist() == [1.0, 1.0]
    state["w"] += 1.0
    w = state["w"]
    w += 1.0
    assert state["w"].tolist() == [2.0, 2.0]
    assert base["w"].tolist() == [0.0, 0.0]
    changes = state.changes()
    assert sorted(changes.put) == ["new", "w"]
    assert changes.applied_to(base)["w"].tolist() == [2.0, 2.0]


def test_setdefault_gives_what_is_kept():
    state = State({})
    w = state.setdefault("w", np.zeros(1))
    w += 1
    assert state["w"].tolist() == [1.0]
    assert state.setdefault("w", np.zeros(1)) is w


def test_frames_of_mixed_and_nullable_numbers_are_numbers():
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [True, False], "c": pd.array([1, None], dtype="Int64")})
    X = fs.Site("s", frame).X
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, [[1.5, 1.0, 1.0], [2.5, 0.0, np.nan]])


def test_state_is_a_mapping():
    state = State({"a": 1, "b": 2})
    del state["a"]
    state["c"] = 3
    assert dict(state) == {"b": 2, "c": 3}
    assert len(state) == 2
    assert "a" not in state
    assert state.pop("b") == 2
    assert state.get("b", 9) == 9
    assert state.changes().deleted == ("a", "b")
    assert state.changes().applied_to({"a": 1, "b": 2}) == {"c": 3}
    state["a"] = 7
    assert state.changes().applied_to({"a": 1, "b": 2}) == {"a": 7, "c": 3}
    for missing in ("zz", "b"):
        with pytest.raises(KeyError):
            _ = state[missing]
        with pytest.raises(KeyError):
            del state[missing]


def test_reading_state_changes_nothing():
    base = {"w": np.array([np.nan, -0.0]), "n": 1}
    state = State(base)
    _ = state["w"], state["n"], state.get("x")
    assert not state.changes()


def test_state_holds_only_what_may_travel():
    with pytest.raises(MessageError, match="site state key 'model'"):
        State({})["model"] = object()


def test_what_a_site_computes_once_is_kept_across_calls():
    made = []

    @fs.step
    def use_gram(site):
        return {"gram": site.cached("gram", lambda: made.append(site.name) or site.X.T @ site.X)}

    fed = fs.LocalFederation([fs.Site("a", np.eye(2)), fs.Site("b", np.ones((2, 2)))])
    first, second = fed.ask(use_gram), fed.ask(use_gram)
    assert made == ["a", "b"]
    np.testing.assert_array_equal(first["b"]["gram"], second["b"]["gram"])


@pytest.fixture
def mixed():
    return pd.DataFrame({"proto": ["tcp", "udp", "tcp"], "size": [1.0, 2.0, 3.0]})


def test_frames_of_text_and_numbers_are_held_once(mixed):
    site = fs.Site("s", mixed)
    assert (len(site), repr(site)) == (3, "Site('s', 3x2)")
    assert site._data._X is None
    assert site.X.dtype == object
    assert site.X is site.X
    np.testing.assert_array_equal(site.X, mixed.to_numpy())
    [batch] = site.batches(9)
    np.testing.assert_array_equal(batch.X, mixed.to_numpy())
    assert site.fingerprint() == fs.Site("s", mixed.copy()).fingerprint()
    assert site.fingerprint() != fs.Site("s", mixed.assign(proto="gre")).fingerprint()


def test_what_is_written_to_a_frame_later_does_not_reach_the_site(mixed):
    site = fs.Site("s", mixed)
    mixed.loc[0, "size"] = 99.0
    assert site.frame.loc[0, "size"] == 1.0
    assert site.X[0, 1] == 1.0


def test_a_transform_that_takes_frames_gets_one_where_there_is_one(mixed):
    seen = []

    @fs.transform(frames=True)
    def lengths(rows):
        seen.append(type(rows).__name__)
        cells = rows.to_numpy() if isinstance(rows, pd.DataFrame) else rows
        return np.array([[len(str(cell)) for cell in row] for row in cells], dtype=float)

    @fs.transform
    def doubled(X):
        return 2 * X

    @fs.step
    def shown(site):
        blocks = np.concatenate([batch.X for batch in site.batches(2)])
        return {"X": site.X, "blocks": blocks, "none": site.frame is None and site.feature_names is None}

    frame_site, array_site = fs.Site("f", mixed), fs.Site("a", mixed.to_numpy())
    fed = fs.LocalFederation([frame_site, array_site]).apply(lengths).apply(doubled)
    replies = fed.ask(shown)
    for name in ("f", "a"):
        np.testing.assert_array_equal(replies[name]["X"], [[6, 6], [6, 6], [6, 6]])
        np.testing.assert_array_equal(replies[name]["blocks"], replies[name]["X"])
        assert replies[name]["none"]
    # Of an array in blocks as well as in one piece, of a frame once.
    assert sorted(seen) == ["DataFrame", "ndarray", "ndarray", "ndarray"]
    assert frame_site._data._X is None
    after_another = fs.LocalFederation([fs.Site("f", mixed[["size"]])]).apply(doubled).apply(lengths)
    np.testing.assert_array_equal(after_another.ask(shown)["f"]["X"], [[3], [3], [3]])
    assert seen[-1] == "ndarray"


def test_transforms_apply_in_order_and_to_batches_too():
    @fs.transform
    def plus(X, by):
        return X + by

    @fs.transform
    def times(X, by):
        return X * by

    @fs.step
    def both_ways(site):
        blocks = np.concatenate([batch.X for batch in site.batches(2)])
        return {"X": site.X, "blocks": blocks, "same": site.X is site.X}

    X = np.arange(6.0).reshape(3, 2)
    fed = fs.federate(X, sites=["a"] * 3)
    through = fed.apply(plus, by=np.ones(2)).apply(times, by=10.0)
    reply = through.ask(both_ways)["a"]
    np.testing.assert_array_equal(reply["X"], (X + 1) * 10)
    np.testing.assert_array_equal(reply["blocks"], (X + 1) * 10)
    assert reply["same"]
    np.testing.assert_array_equal(fed.ask(both_ways)["a"]["X"], X)
    with pytest.raises(fs.errors.QuorumError, match="not an installed transform"):
        fed.apply(lambda X: X).ask(both_ways)


def test_a_change_in_the_middle_of_a_large_array_is_one():
    """Printed, such arrays are alike."""
    state = State({"w": np.zeros(5000), "n": 1})
    state["w"][2500] = 1.0
    state["n"] = 1.0
    changes = state.changes()
    assert changes.put["w"][2500] == 1.0
    assert type(changes.put["n"]) is float  # 1.0 is not 1


def test_what_was_computed_stays_when_the_data_are_digested():
    made = []
    site = fs.Site("s", np.eye(2))
    for _ in range(2):
        site.cached("gram", lambda: made.append(1))
        site.digest()
    assert made == [1]


@pytest.mark.parametrize(("n", "read"), [(2047, 2047), (2048, 1024), (3072, 1024), (3071, 1536)])
def test_a_fingerprint_is_of_every_so_many_rows(n, read):
    def fingerprint(row=None, **columns):
        X = np.zeros((n, 1))
        X[row] += row is not None
        return fs.Site("s", X, **columns).fingerprint()

    known, every = fingerprint(), round(n / read)
    assert [fingerprint(row) == known for row in (0, every, every - 1)] == [False, False, every > 1]
    columns = {"y": np.zeros(n), "task": np.zeros(n, dtype=int)}
    assert len({known, *(fingerprint(**{name: columns[name]}) for name in columns), fingerprint(**columns)}) == 4


def test_a_digest_is_of_all_rows_and_columns():
    def digest(name="s", X=0.0, y=0.0, task=0.0, row=0, frame=False):
        values = [np.zeros((9000, 2)), np.zeros(9000), np.zeros(9000)]
        for array, value in zip(values, (X, y, task), strict=True):
            array[row] = value
        rows = pd.DataFrame(values[0], columns=["a", "b"]) if frame else values[0]
        return fs.Site(name, rows, values[1], values[2]).digest()

    changed = [{what: 1.0, "row": row} for what in ("X", "y", "task") for row in (0, 4095, 4096, 8999)]
    assert len({digest(**change) for change in ({}, {"name": "t"}, {"frame": True}, *changed)}) == 3 + len(changed)
    assert digest() == digest()
    assert digest(frame=True) == digest(frame=True)


@pytest.mark.parametrize("kind", ["f8", "f4", "c16", "i8", "u1", "?", "O", "U3"])
def test_invented_values_have_the_kind_and_the_shape_and_nothing_else(kind, monkeypatch):
    few = invented_values(np.dtype(kind), (40, 2), 3.0)
    assert (few.dtype, few.shape, few.flags.writeable) == (np.dtype(kind), (40, 2), False)
    assert len({repr(row) for row in few.tolist()}) > 2  # and not one row again and again
    np.testing.assert_array_equal(few, invented_values(np.dtype(kind), (40, 2), 3.0))
    if few.dtype.kind in "fc":
        np.testing.assert_allclose(few, 3.0 * invented_values(np.dtype(kind), (40, 2), 1.0), rtol=1e-6)
    else:
        assert set(few.ravel().tolist()) == ({"a", "b"} if few.dtype.kind in "OU" else {0, 1})
    monkeypatch.setattr(site_data, "_INVENTED_ROWS", 10)
    many = invented_values(np.dtype(kind), (40, 2), 3.0)
    np.testing.assert_array_equal(many, np.broadcast_to(many[0], (40, 2)))
    assert many.strides[0] == 0  # no memory
    assert invented_values(np.dtype(kind), (10, 2), 3.0).strides[0] > 0
