"""Transforms that sites apply to their own rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs


@pytest.fixture
def mixed():
    return pd.DataFrame({"proto": ["tcp", "udp", "tcp"], "size": [1.0, 2.0, 3.0]})


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
    assert "X" not in vars(frame_site._data)
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


@pytest.mark.parametrize("kind", ["array", "frame", "stream"])
def test_few_numbers_of_a_row_are_made_once_and_later_transforms_begin_with_them(kind, tmp_path):
    made = []

    @fs.transform(frames=True)
    def length(rows):
        made.append(len(rows))
        return np.sqrt(np.square(np.asarray(rows)).sum(axis=1, keepdims=True))

    @fs.transform
    def plus(X, by):
        return X + by

    @fs.step
    def total(site):
        columns = site.no_rows().shape[1]
        return {"sum": sum(batch.X.sum(axis=0) for batch in site.batches(7)), "columns": columns}

    X = np.random.default_rng(0).normal(size=(40, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    given = {"array": X, "frame": frame, "stream": fs.stream(tmp_path / "rows.csv")}[kind]
    fed = fs.LocalFederation([fs.Site("s", given)])
    want = np.sqrt(np.square(X).sum(axis=1)).sum()
    scored = fed.apply(length)
    for seen, more in ((scored, 0.0), (scored, 0.0), (scored.apply(plus, by=1.0), 40.0)):
        np.testing.assert_allclose(seen.ask(total)["s"]["sum"], want + more)
    twice = scored.apply(plus, by=1.0).apply(plus, by=2.0)
    np.testing.assert_allclose(twice.ask(total)["s"]["sum"], want + 120.0)
    assert sum(made) == 40
