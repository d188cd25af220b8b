"""FedStandardScaler against pooled moments in extended precision, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan import aggregation
from fedspan.errors import InputError


def pooled(X):
    """Return mean and variance in long double, two-pass."""
    X = X.astype(np.longdouble)
    mean = X.mean(axis=0)
    return mean, ((X - mean) ** 2).mean(axis=0)


def assert_exact(scaler, X):
    mean, variance = pooled(X)
    np.testing.assert_allclose(scaler.mean_, mean, rtol=1e-10)
    np.testing.assert_allclose(scaler.var_, variance, rtol=1e-10)
    np.testing.assert_allclose(scaler.scale_, np.sqrt(variance), rtol=1e-10)


@pytest.mark.parametrize("ratio", [0, 1, 1e4, 1e8])
def test_means_many_times_the_deviations(ratio):
    rng = np.random.default_rng(1)
    deviation = np.array([1e-3, 1.0, 1e5])
    X = deviation * (rng.normal(size=(5000, 3)) + ratio)
    # Every site has another level, so that no site's own mean is the common one.
    labels = np.minimum(np.arange(5000) // 300, 9)
    X += deviation * labels[:, None]
    assert_exact(fs.FedStandardScaler().fit(X, sites=labels), X)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 6))
def test_any_split_equals_the_pooled_moments(seed, n, sites):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-5, 5, 3) + rng.normal(size=3) * 10.0 ** rng.integers(-3, 6)
    labels = rng.integers(0, sites, n)
    scaler = fs.FedStandardScaler().fit(X, sites=labels)
    mean, variance = pooled(X)
    np.testing.assert_allclose(scaler.mean_, mean, rtol=1e-10, atol=1e-14 * np.abs(X).max())
    np.testing.assert_allclose(scaler.var_, variance, rtol=1e-9, atol=1e-24 * np.abs(X).max() ** 2)


@pytest.mark.parametrize("options", [{}, {"with_mean": False}, {"with_std": False}])
def test_equals_scikit_learn(options):
    rng = np.random.default_rng(2)
    X = rng.normal(2.0, 3.0, size=(200, 4))
    X[:, 1] = 7.0  # no variance
    X[:, 2] = 0.1  # no variance, and not a binary fraction
    ours = fs.FedStandardScaler(**options).fit(X, sites=np.arange(200) % 7)
    theirs = StandardScaler(**options).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, rtol=1e-12)
    for name in ("var_", "scale_"):
        assert (getattr(ours, name) is None) == (getattr(theirs, name) is None)
    if not options:
        assert ours.scale_[1] == ours.scale_[2] == 1.0
        assert ours.n_samples_seen_ == 200


def test_without_deviations_it_learns_on_is_saved_and_is_loaded(tmp_path):
    X = np.random.default_rng(2).normal(2.0, 3.0, size=(60, 3))
    scaler = fs.FedStandardScaler(with_std=False)
    for batch in (X[:20], X[20:]):
        scaler.partial_fit(batch, sites=np.arange(len(batch)) % 2)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), rtol=1e-12)
    assert scaler.var_ is None
    scaler.save(tmp_path / "scaler.fedspan")
    loaded = fs.load(tmp_path / "scaler.fedspan")
    assert loaded.scale_ is None
    np.testing.assert_array_equal(loaded.transform(X), scaler.transform(X))
    with pytest.raises(InputError, match="was fitted with with_std=False, and has no variances"):
        scaler.set_params(with_std=True).partial_fit(X)


@pytest.mark.parametrize("name", ["with_mean", "with_std"])
def test_a_word_is_no_truth_value(name):
    with pytest.raises(InputError, match=f"{name}='no' must be True or False"):
        fs.FedStandardScaler(**{name: "no"}).fit([[1.0], [2.0]])


def test_float32_is_kept_and_moments_are_double():
    X = (np.random.default_rng(3).normal(size=(1000, 2)) + 1000).astype(np.float32)
    scaler = fs.FedStandardScaler().fit(X, sites=np.arange(1000) % 3)
    assert_exact(scaler, X)
    assert scaler.transform(X).dtype == np.float32
    assert scaler.mean_.dtype == np.float64
    np.testing.assert_allclose(scaler.transform(X).std(axis=0), 1.0, rtol=1e-4)


def test_integers_and_booleans_are_numbers():
    X = np.array([[1, 0], [2, 1], [3, 1]])
    np.testing.assert_array_equal(fs.FedStandardScaler().fit(fs.federate(X, sites=[0, 0, 1])).mean_, [2.0, 2 / 3])
    np.testing.assert_array_equal(fs.FedStandardScaler().fit(fs.federate(X > 1, sites=[0, 0, 1])).mean_, [2 / 3, 0.0])


def test_nan_is_refused_by_name_of_feature_and_site():
    frame = pd.DataFrame({"age": [1.0, 2.0, np.nan, 4.0], "dose": [1.0, np.inf, 3.0, 4.0]})
    fed = fs.LocalFederation([fs.Site("north", frame.iloc[:2]), fs.Site("south", frame.iloc[2:])])
    with pytest.raises(InputError, match=r"feature age at site 'south' \(1 values\), feature dose at site 'north'"):
        fs.FedStandardScaler().fit(fed)


def test_columns_are_matched_by_name_whatever_their_order():
    X = np.random.default_rng(0).normal(size=(9, 3))
    frames = [pd.DataFrame(X[i::3], columns=["a", "b", "c"]) for i in range(3)]
    scaler = fs.FedStandardScaler().fit(fs.LocalFederation([fs.Site(f"s{i}", f) for i, f in enumerate(frames)]))
    assert scaler.feature_names_in_.tolist() == ["a", "b", "c"]
    for order in (["b", "a", "c"], ["c", "b", "a"]):
        mixed = [frames[0], frames[1], frames[2][order]]
        for tables in (mixed, [pa.table(frame) for frame in mixed]):
            fed = fs.LocalFederation([fs.Site(f"s{i}", table) for i, table in enumerate(tables)])
            again = fs.FedStandardScaler().fit(fed)
            assert again.feature_names_in_.tolist() == ["a", "b", "c"]
            np.testing.assert_array_equal(again.mean_, scaler.mean_)


def test_sites_with_other_names_are_left_out_and_the_warning_lists_them():
    frames = {f"s{i}": pd.DataFrame(np.eye(3), columns=["a", "b", "c"]) for i in range(4)}
    frames["s1"] = frames["s1"].rename(columns={"b": "B"})
    frames["s4"] = frames["s1"].rename(columns={"b": "B"})
    frames["s2"] = frames["s2"].assign(d=1.0, e=2.0)
    expected = (
        "not those of most sites: s1, s4: it lacks 'b' and also has 'B'; s2: it also has 'd', 'e'; add, drop or rename"
    )
    sites = [*frames.items(), ("s5", frames["s0"]), ("s6", frames["s0"])]
    with pytest.warns(UserWarning, match=expected):
        scaler = fs.FedStandardScaler().fit(fs.federate(dict(sites)))
    assert scaler.sites_ == ("s0", "s3", "s5", "s6")
    with pytest.raises(fs.errors.QuorumError, match=r"s2: rejected: it also has 'd', 'e'|it lacks 'd', 'e'"):
        fs.FedStandardScaler().fit(fs.federate({name: frames[name] for name in ("s0", "s2")}))


def test_bad_values_are_named_even_when_replies_are_lost():
    X = np.zeros((50, 3))
    X[7, 1] = np.nan
    for seed in range(6):
        fed = fs.federate(X, sites=np.arange(50) % 5, policy=fs.Policy(quorum=1)).with_faults(
            fs.FaultPlan(seed=seed, drop=0.3)
        )
        refusal = ""
        try:
            fs.FedStandardScaler().fit(fed)
        except InputError as error:
            refusal = str(error)
        assert not refusal or "feature number 1 at" in refusal


def test_transform_matches_columns_by_name_and_refuses_others():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 2)), columns=["a", "b"])
    scaler = fs.FedStandardScaler().fit(fs.federate(frame, sites=np.arange(8) % 2))
    here, swapped = (
        scaler.transform(fs.federate(frame[order], sites=np.arange(8) % 2)) for order in (["a", "b"], ["b", "a"])
    )
    np.testing.assert_array_equal(fs.FedPCA(1).fit(swapped).components_, fs.FedPCA(1).fit(here).components_)
    others = scaler.transform(fs.federate(frame.rename(columns={"a": "A"}), sites=np.arange(8) % 2))
    with pytest.raises(fs.errors.QuorumError, match=r"columns \('A', 'b'\).*was fitted on \('a', 'b'\)"):
        fs.FedPCA(1).fit(others)


def test_other_columns_count_against_the_quorum():
    sites = [fs.Site(f"s{i}", np.ones((4, 3 + (i == 2)))) for i in range(5)]
    with pytest.raises(fs.errors.QuorumError, match="s2: rejected: it has 4 columns, most sites have 3"):
        fs.FedStandardScaler().fit(fs.LocalFederation(sites, policy=fs.Policy(quorum="all")))
    with pytest.warns(UserWarning, match="s2"):
        scaler = fs.FedStandardScaler().fit(fs.LocalFederation(sites))
    assert scaler.run_.failures == [(0, "s2", "rejected: it has 4 columns, most sites have 3")]


def test_a_table_without_names_goes_with_named_ones():
    X = np.arange(12.0).reshape(6, 2)
    sites = [fs.Site("a", pd.DataFrame(X[:2], columns=["u", "v"])), fs.Site("b", X[2:4]), fs.Site("c", X[4:])]
    scaler = fs.FedStandardScaler().fit(fs.LocalFederation(sites))
    assert scaler.sites_ == ("a", "b", "c")
    assert scaler.feature_names_in_.tolist() == ["u", "v"]


def test_text_tables_are_refused():
    fed = fs.federate(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), sites=[0, 0])
    with pytest.raises(fs.errors.QuorumError, match="must hold numbers"):
        fs.FedStandardScaler().fit(fed)


def test_a_site_that_drops_out_costs_its_rows_and_no_accuracy():
    X = np.random.default_rng(4).normal(size=(90, 2)) + 1e6
    labels = np.arange(90) % 9

    class DropsAt:
        def __call__(self, replies, bad, rng, call):
            return dict.fromkeys(bad) if call.step == "sums.moments" else {}

    fed = fs.federate(X, sites=labels).corrupt(DropsAt(), sites=["4"])
    scaler = fs.FedStandardScaler().fit(fed)
    assert scaler.n_samples_seen_ == 80
    assert_exact(scaler, X[labels != 4])


@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)], ids=["plain", "secure"])
def test_weights_are_those_of_scikit_learn(policy):
    rng = np.random.default_rng(6)
    X, labels = rng.normal(size=(60, 3)) + 1e3, np.arange(60) % 4
    for weights in (rng.integers(0, 3, 60), rng.exponential(size=60), np.zeros(60) + (labels == 1)):
        theirs = StandardScaler().fit(X, sample_weight=weights)
        ours = fs.FedStandardScaler().fit(fs.federate(X, sites=labels, sample_weight=weights, policy=policy))
        np.testing.assert_allclose(ours.n_samples_seen_, theirs.n_samples_seen_, rtol=1e-12)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
        np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-9)
        np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-9)
    assert fs.FedStandardScaler().fit(X, sample_weight=np.ones(60)).n_samples_seen_ == 60


def test_what_cannot_use_weights_refuses_them():
    X = np.random.default_rng(7).normal(size=(60, 3))
    with pytest.raises(InputError, match=r"FedStandardScaler\(aggregator=.*\) takes no account of sample_weight"):
        fs.FedStandardScaler(aggregator=aggregation.CoordinateMedian()).fit(X, sample_weight=np.ones(60))
    with pytest.raises(InputError, match=r"the weights of all 60 rows .* are zero"):
        fs.FedStandardScaler().fit(X, sample_weight=np.zeros(60))


def test_empty_sites_are_harmless():
    X = np.random.default_rng(5).normal(size=(10, 2))
    fed = fs.LocalFederation([fs.Site("a", X), fs.Site("b", np.zeros((0, 2)))])
    assert_exact(fs.FedStandardScaler().fit(fed), X)
    with pytest.raises(InputError, match="no rows"):
        fs.FedStandardScaler().fit(fs.LocalFederation([fs.Site("b", np.zeros((0, 2)))]))


@pytest.mark.parametrize("bad", ["GeometricMedian", aggregation.GeometricMedian, 3])
def test_what_is_no_aggregator_is_refused_before_any_request(bad):
    for kind in (fs.FedPCA, fs.FedStandardScaler):
        with pytest.raises(InputError, match="aggregator="):
            kind(aggregator=bad).fit(np.eye(5))


def test_a_plain_function_is_an_aggregator():
    def middle(values, weights=None):
        assert weights is None
        return aggregation.Aggregate(np.median(values, axis=0), np.full(len(values), 1 / len(values)))

    X = np.random.default_rng(0).normal(size=(90, 3)) + 5
    scaler = fs.FedStandardScaler(aggregator=middle).fit(X, sites=np.arange(90) % 9)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=0.3)


def test_columns_of_very_different_units_are_protected_alike():
    """A geometric median of whole vectors would let the small columns go; the coordinate-wise one does not."""
    rng = np.random.default_rng(0)
    units = np.array([1e8, 1.0, 1e-6])
    X = rng.normal(size=(900, 3)) * units
    fed = fs.federate(X, sites=np.arange(900) % 9)

    def attack(replies, bad, rng, call):
        return {
            site: {key: v + np.array([0.0, 50.0, 50e-6]) if np.ndim(v) else v for key, v in replies[site].items()}
            for site in bad
        }

    scaler = fs.FedStandardScaler(aggregator=aggregation.CoordinateMedian()).fit(
        fed.corrupt(attack, sites=["1", "5", "7"])
    )
    np.testing.assert_allclose(scaler.mean_ / units, 0.0, atol=0.3)
    np.testing.assert_allclose(scaler.scale_ / units, 1.0, atol=0.3)


def test_partial_fit_with_weights_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(60, 3)), rng.random(60) + 0.1
    theirs, ours = StandardScaler(), fs.FedStandardScaler()
    for part in (slice(0, 20), slice(20, 60)):
        theirs.partial_fit(X[part], sample_weight=w[part])
        ours.partial_fit(X[part], sites=np.arange(len(X[part])) % 3, sample_weight=w[part])
    np.testing.assert_allclose(ours.mean_, theirs.mean_)
    np.testing.assert_allclose(ours.var_, theirs.var_)
    np.testing.assert_allclose(ours.n_samples_seen_, theirs.n_samples_seen_)


@pytest.mark.parametrize("copy", [None, True, False])
def test_the_argument_copy_of_scikit_learn_is_taken(copy):
    X = np.random.default_rng(0).normal(size=(20, 3))
    scaler = fs.FedStandardScaler(with_mean=False, with_std=False).fit(X)
    for method in (scaler.transform, scaler.inverse_transform):
        found = method(X, copy=copy)
        np.testing.assert_array_equal(found, X)
        assert not np.shares_memory(found, X)
