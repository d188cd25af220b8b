"""What a coordinator holds, read from journals and models."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import Received, from_model, from_run
from fedspan.audit.received import Noise
from fedspan.errors import InputError, JournalError
from fedspan.federation.journal import read_journal
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances


def wrong_at_first(factor):
    def attack(replies, bad, rng, call):
        if call.number:
            return {site: replies[site] for site in bad}
        return {site: {**replies[site], "distances": factor * replies[site]["distances"]} for site in bad}

    return attack


@pytest.mark.parametrize("factor", [-1, 1e9])
def test_a_rejected_reply_is_not_taken_for_rows(table, tmp_path, factor):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        found = fed.run(feddl, n_landmarks=10, rounds=1)
        posted = fed.corrupt(wrong_at_first(factor), sites=["b"]).run(landmark_distances, landmarks=found)
    assert len(list(read_journal(tmp_path / "run-001" / "journal")[1])) == 2  # requested again
    received = from_run(tmp_path, found.points)
    expected = np.concatenate([posted[name].astype(np.float64) for name in received.sites])
    np.testing.assert_array_equal(received.distances, expected * found.scale)  # the journal has the unit


def test_distances_in_several_messages_are_joined(table, tmp_path):
    X, sites = table
    found = fs.federate(X, sites=sites).run(feddl, n_landmarks=40, rounds=1)
    with fs.federate(X, sites=sites, run_dir=tmp_path, policy=fs.Policy(max_bytes=4096)) as fed:
        posted = fed.run(landmark_distances, landmarks=found)
    assert len(list(read_journal(tmp_path / "run-000" / "journal")[1])) > 1
    received = from_run(tmp_path, found.points)
    expected = np.concatenate([posted[name].astype(np.float64) for name in received.sites])
    np.testing.assert_array_equal(received.distances, expected * found.scale)  # the journal has the unit


def test_reading_a_journal_changes_nothing_and_stops_at_an_entry_that_was_cut_short(table, tmp_path):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, random_state=0).fit(fed)
    path = tmp_path / "run-000" / "journal"
    before = path.read_bytes()
    head, entries = read_journal(path)
    assert head["what"] == "FedSpectralClustering"
    numbers = [entry.number for entry in entries]
    assert numbers == list(range(len(numbers)))
    assert path.read_bytes() == before
    torn = tmp_path / "journal"
    torn.write_bytes(before[:-5])
    assert [entry.number for entry in read_journal(torn)[1]] == numbers  # the last entry has the ending
    torn.write_bytes(before[: len(before) // 2])
    assert len(list(read_journal(torn)[1])) < len(numbers)
    assert torn.stat().st_size == len(before) // 2
    torn.write_bytes(b"something else")
    with pytest.raises(JournalError, match="is damaged"):
        read_journal(torn)
    with pytest.raises(InputError, match="there is no journal"):
        read_journal(tmp_path / "none")


@pytest.mark.parametrize(
    ("privacy", "epsilon"),
    [(fs.privacy.GaussianData(5.0, 1e-5, clip=3.0), 5.0), (fs.privacy.PaperNoise(1.0, 1e-4), None), (None, None)],
)
def test_the_noise_of_a_run_is_that_of_its_model(table, tmp_path, privacy, epsilon):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        model = fs.FedLandmarks(5, rounds=2, random_state=0, privacy=privacy).fit(fed)
    of_run, of_model = from_run(tmp_path).noise, from_model(model).noise
    if privacy is None:
        assert of_run is of_model is None
        return
    assert of_run == Noise(type(privacy).__name__, epsilon, privacy.delta)
    assert (of_model.mechanism, of_model.delta) == (of_run.mechanism, of_run.delta)
    assert of_model.epsilon == pytest.approx(model.privacy_.worst)
    assert of_run.on_rows is of_model.on_rows is (epsilon is not None)


def test_true_rows_are_put_in_the_order_of_the_received_ones():
    held = Received("x", "y", ("a", "b"), np.array([0, 1, 1, 0]))
    truth = {"a": np.array([[1.0], [4.0]]), "b": np.array([[2.0], [3.0]])}
    assert held.rows_of(truth).ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert Received("x", "y").rows_of(truth).ravel().tolist() == [1.0, 4.0, 2.0, 3.0]
    with pytest.raises(InputError, match=r"nothing for site 'b'"):
        held.rows_of({"a": truth["a"]})
    with pytest.raises(InputError, match="truth has 3 rows, and 4 were received"):
        held.rows_of(np.zeros((3, 1)))
