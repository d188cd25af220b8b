"""FedTabularEncoder against scikit-learn on the pooled rows, on messy tables, and through everything a run can meet."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import fedspan as fs
from fedspan.aggregation import CoordinateMedian
from fedspan.errors import InputError


def traffic(n=400, seed=0):
    """Return a clean table: two heavy tails, a plain column, a flag, and two columns of text."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "bytes": rng.lognormal(5, 2, n),
            "delta": rng.standard_t(1.5, n) * 1000,
            "level": rng.normal(3, 2, n),
            "flag": rng.random(n) < 0.3,
            "proto": rng.choice(["tcp", "udp", "icmp"], n, p=[0.6, 0.3, 0.1]),
            "state": rng.choice(["FIN", "CON"], n),
        }
    )


HEAVY, PLAIN, TEXT = ["bytes", "delta"], ["level", "flag"], ["proto", "state"]


def signed_log(x):
    return np.sign(x) * np.log1p(np.abs(x))


def gaps_in(frame):
    return np.random.default_rng(1).random(frame.shape) < 0.1


def with_gaps(frame):
    """Return the table with gaps of many kinds, and with numbers as text here and there."""
    rng = np.random.default_rng(2)
    kinds = rng.choice(np.array(["-", "", "NaN", None, np.nan], dtype=object), frame.shape)
    gaps = frame.astype(object).mask(gaps_in(frame), kinds)
    as_text = rng.random(len(frame)) < 0.5
    return gaps.assign(level=gaps["level"].mask(as_text, gaps["level"].map(str)))


def test_equals_scikit_learn_on_the_pooled_rows():
    frame = traffic()
    ours = fs.FedTabularEncoder(unknown="zero").fit(frame, sites=np.arange(400) % 7)
    assert ours.log_.tolist() == [True, True, False, False, False, False]
    pooled = make_pipeline(
        make_column_transformer(
            (FunctionTransformer(signed_log), HEAVY),
            ("passthrough", PLAIN),
            (OneHotEncoder(sparse_output=False), TEXT),
        ),
        StandardScaler(),
    )
    expected = np.column_stack([pooled.fit_transform(frame), np.zeros(400)])  # no gap is unexpected
    np.testing.assert_allclose(ours.transform(frame), expected, rtol=1e-10, atol=1e-12)
    bare = fs.FedTabularEncoder(unknown="zero", missing="mean").fit(frame, sites=np.arange(400) % 7)
    np.testing.assert_array_equal(bare.transform(frame), ours.transform(frame)[:, :-1])
    assert ours.categories_ == {"proto": ("icmp", "tcp", "udp"), "state": ("CON", "FIN")}
    assert ours.n_samples_seen_ == 400
    assert ours.get_feature_names_out().tolist() == [
        *("bytes", "delta", "level", "flag"),
        *("proto_icmp", "proto_tcp", "proto_udp", "state_CON", "state_FIN"),
        "(unexpected missing)",
    ]


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_gaps_equal_scikit_learn_on_the_pooled_rows(missing):
    clean = traffic()
    frame = with_gaps(clean)
    gaps = pd.DataFrame(gaps_in(clean), columns=clean.columns)
    numbers = clean[HEAVY + PLAIN].astype(float).where(~gaps)
    logs = numbers.assign(**{column: signed_log(numbers[column]) for column in HEAVY})
    filled = SimpleImputer().fit_transform(logs)
    one_hot = pd.get_dummies(clean[TEXT].where(~gaps)).astype(float)
    parts = {column: filled[:, [i]] for i, column in enumerate(HEAVY + PLAIN)}
    for column in TEXT:
        block = one_hot.filter(like=column).to_numpy(copy=True)
        if missing == "mean":
            block[gaps[column]] = block[~gaps[column]].mean(axis=0)
        parts[column] = block
    if missing == "indicator":
        parts = {column: np.column_stack([part, gaps[column]]) for column, part in parts.items()}
    expected = StandardScaler().fit_transform(np.hstack([parts[column] for column in clean]))
    ours = fs.FedTabularEncoder(unknown="zero", missing=missing).fit(frame, sites=np.arange(400) % 7)
    np.testing.assert_allclose(ours.transform(frame), expected, rtol=1e-10, atol=1e-11)
    assert ours.missing_.tolist() == [missing == "indicator"] * 6
    unscaled = fs.FedTabularEncoder(unknown="zero", missing="mean", scale=False).fit(frame).transform(frame)
    np.testing.assert_allclose(unscaled[:, :4], filled, rtol=1e-12)
    assert (ours.transform(frame)[gaps["bytes"], 0] == 0.0).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(2, 9))
def test_any_split_gives_the_same_encoder(seed, sites):
    rng = np.random.default_rng(seed)
    frame = with_gaps(traffic(60, seed=seed % 1000))
    whole = fs.FedTabularEncoder().fit(frame)
    parted = fs.FedTabularEncoder().fit(frame, sites=rng.integers(0, sites, 60))
    assert parted.categories_ == whole.categories_
    np.testing.assert_array_equal(parted.log_, whole.log_)
    np.testing.assert_array_equal(parted.missing_, whole.missing_)
    np.testing.assert_allclose(parted.mean_, whole.mean_, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(parted.scale_, whole.scale_, rtol=1e-11)


def test_a_table_is_the_same_however_it_is_stored():
    frame = traffic(100)
    expected = fs.FedTabularEncoder().fit(frame)
    stored = {
        "objects": frame.astype(object),
        "text": frame.map(lambda cell: f" {cell!r} ".replace("'", "")),
        "categories": frame.astype(dict.fromkeys(TEXT, "category")),
        "array": frame.to_numpy(dtype=object),
        "lists": frame.to_numpy(dtype=object).tolist(),
    }
    for how, table in stored.items():
        ours = fs.FedTabularEncoder().fit(table, sites=np.arange(100) % 3)
        np.testing.assert_allclose(ours.transform(table), expected.transform(frame), rtol=1e-9, err_msg=how)
    narrow = frame[HEAVY + PLAIN[:1]].astype(np.float32)
    for table in (narrow, narrow.to_numpy()):
        assert fs.FedTabularEncoder().fit(table).transform(table).dtype == np.float32
    whole = pd.DataFrame({"big": np.array([2**64 - 1, 0], dtype=np.uint64), "small": np.array([-5, 5], dtype=np.int8)})
    np.testing.assert_allclose(fs.FedTabularEncoder().fit_transform(whole), [[1, -1, 0], [-1, 1, 0]])


GARBAGE = [np.nan, None, np.inf, -1e71, "garbage", "-", ""]


def test_cells_that_are_missing_where_none_was_are_told():
    frame = pd.DataFrame({"a": [1.0, 3.0], "b": [5.0, 9.0], "gaps": [2.0, np.nan], "proto": ["tcp", "udp"]})
    encoder = fs.FedTabularEncoder(log=False).fit(frame, sites=[0, 1])
    assert encoder.get_feature_names_out().tolist()[-1] == "(unexpected missing)"
    assert encoder.unexpected_ == pytest.approx(5 * np.sqrt(7))  # a, b, gaps, gaps_(missing), and three of proto
    assert encoder.missing_.tolist() == [False, False, True, False]
    new = pd.DataFrame({"a": GARBAGE, "b": 7.0, "gaps": "?", "proto": "tcp"}, dtype=object)
    new.loc[0] = [2.0, 7.0, "-", "gre"]  # a known kind of gap, and a new name: nothing unexpected
    new.loc[1, "b"] = "x"
    new.loc[2, "proto"] = None
    rows = encoder.transform(new)
    np.testing.assert_allclose(rows[:, -1], encoder.unexpected_ * np.array([0, 2, 2, 1, 1, 1, 1]))
    np.testing.assert_array_equal(rows[:, :2], 0.0)
    np.testing.assert_array_equal(encoder.transform(frame)[:, -1], 0.0)
    raw = fs.FedTabularEncoder(log=False, scale=False).fit(frame)  # variances 1, 4, 0, and 1/4 three times
    assert raw.unexpected_ == pytest.approx(5 * np.sqrt(7))
    wide = fs.FedTabularEncoder(log=False, scale=False).fit(frame.assign(a=[0.0, 20.0]))
    assert wide.unexpected_ == pytest.approx(5 * np.sqrt(100 + 4 + 3 / 4))
    assert wide.transform(new)[:, -1].tolist() == pytest.approx([wide.unexpected_ * k for k in (0, 2, 2, 1, 1, 1, 1)])


def test_no_column_tells_unexpected_gaps_where_there_can_be_none():
    frame = pd.DataFrame({"gaps": [2.0, np.nan], "proto": ["tcp", None]})
    named = frame[["proto"]].assign(proto=["tcp", "udp"])
    for table, fixed in ((frame, None), (frame[["proto"]], None), (named, {"proto": ["tcp", "udp", "-"]})):
        encoder = fs.FedTabularEncoder(categories=fixed).fit(table)
        assert encoder.unexpected_ == 0
        assert "(unexpected missing)" not in encoder.get_feature_names_out()
    silent = fs.FedTabularEncoder(missing="mean").fit(np.eye(3))
    assert silent.unexpected_ == 0
    np.testing.assert_array_equal(silent.transform(np.full((1, 3), np.nan)), np.zeros((1, 3)))
    refitted = fs.FedTabularEncoder().fit(np.eye(3)).fit(frame)
    assert len(refitted.mean_) == len(refitted.get_feature_names_out()) == 5
    clash = pd.DataFrame({"(unexpected missing)": [1.0, 2.0]})
    assert fs.FedTabularEncoder().fit(clash).get_feature_names_out().tolist() == [
        "(unexpected missing)",
        "(unexpected missing)_",
    ]


def flows(n=1000):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "proto": rng.choice(["tcp", "udp"], n),
            "dur": np.exp(rng.normal(size=n) * 2),
            "bytes": np.exp(rng.normal(size=n) * 2),
            "pk": rng.poisson(5, n),
        }
    )


@pytest.mark.parametrize("distance", ["residual", "mahalanobis", "combined"])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("options", [{}, {"rare": 0.0}, {"rare": 0.5}, {"scale": False}], ids=str)
def test_a_row_of_garbage_is_an_anomaly(distance, again, options):
    frame = flows()
    detector = fs.FedPCADetector(2, distance=distance, scale=again)
    model = make_pipeline(fs.FedTabularEncoder(**options), detector).fit(frame)
    bad = pd.DataFrame({"proto": [np.nan], "dur": [np.nan], "bytes": [np.inf], "pk": ["garbage"]})
    assert model.predict(bad).tolist() == [-1]
    assert np.mean(model.predict(frame) == -1) < 0.06
    mean = make_pipeline(fs.FedTabularEncoder(missing="mean", **options), detector).fit(frame)
    assert mean.predict(bad).tolist() == [1]  # else this test shows nothing


@pytest.mark.parametrize("distance", ["residual", "mahalanobis", "combined"])
@pytest.mark.parametrize("again", [True, False])
def test_one_bad_cell_among_forty_heavy_tailed_columns_raises_an_alarm(distance, again):
    frame = pd.DataFrame(np.random.default_rng(0).standard_t(2.2, (2000, 40))).rename(columns="c{}".format)
    encoder = fs.FedTabularEncoder(log=False)  # so that the tails stay, and the threshold is high
    model = make_pipeline(encoder, fs.FedPCADetector(distance=distance, scale=again)).fit(frame)
    calm = pd.DataFrame([frame.mean()] * len(GARBAGE)).reset_index(drop=True)
    assert (model.predict(calm) == 1).all()
    assert (model.predict(calm.astype(object).assign(c7=GARBAGE)) == -1).all()


def test_unknown_names_are_other_or_zero():
    frame = pd.DataFrame({"proto": ["tcp", "udp", "tcp", "udp"]})
    new = pd.DataFrame({"proto": ["gre", "tcp", None]})
    other = fs.FedTabularEncoder(scale=False).fit(frame).transform(new)
    far = 5 * np.sqrt(3)  # no gap was seen: it has a mark of its own
    np.testing.assert_allclose(other, [[0, 0, 1, 0], [1, 0, 0, 0], [0.5, 0.5, 0, far]])
    zero = fs.FedTabularEncoder(scale=False, unknown="zero").fit(frame).transform(new)
    np.testing.assert_allclose(zero, [[0, 0, 0], [1, 0, 0], [0.5, 0.5, 5 * np.sqrt(2)]])


def test_columns_with_many_names_are_capped_by_federated_count():
    addresses = np.r_[np.repeat("10.0.0.1", 60), np.repeat("10.0.0.2", 30), [f"192.168.0.{i}" for i in range(110)]]
    frame = pd.DataFrame({"ip": addresses})
    sites = np.random.default_rng(0).integers(0, 5, 200)
    assert fs.FedTabularEncoder(max_categories=2).fit(frame, sites=sites).categories_ == {
        "ip": ("10.0.0.1", "10.0.0.2")
    }
    assert fs.FedTabularEncoder(max_categories=1).fit(frame, sites=sites).categories_ == {"ip": ("10.0.0.1",)}
    capped = fs.FedTabularEncoder().fit(frame, sites=sites)  # of 112 names 32 fit, and two are not rare
    assert capped.categories_ == {"ip": ("10.0.0.1", "10.0.0.2")}
    assert capped.get_feature_names_out().tolist() == [
        *("ip_10.0.0.1", "ip_10.0.0.2", "ip_(other)"),
        "(unexpected missing)",
    ]
    assert len(fs.FedTabularEncoder(rare=0.0).fit(frame, sites=sites).categories_["ip"]) == 32
    assert len(fs.FedTabularEncoder(max_categories=200).fit(frame, sites=sites).categories_["ip"]) == 112
    flows = pd.DataFrame({"id": [f"flow {i}" for i in range(200)]})
    assert fs.FedTabularEncoder().fit(flows).transform(flows).tolist() == [[0.0, 0.0]] * 200
    with pytest.raises(InputError, match="no column is left"):
        fs.FedTabularEncoder(unknown="zero").fit(flows)


def test_rare_names_are_scaled_as_if_they_were_less_rare():
    frame = pd.DataFrame({"proto": ["tcp"] * 999 + ["gre"]})
    unit = fs.FedTabularEncoder(rare=0.0).fit(frame)
    np.testing.assert_allclose(unit.transform(frame).std(axis=0), [1, 1, 0, 0])
    calm = fs.FedTabularEncoder().fit(frame)
    least = np.sqrt(0.01 * 0.99)
    np.testing.assert_allclose(calm.scale_, [*[least] * 3, 1])
    unseen = calm.transform(pd.DataFrame({"proto": ["sctp"]}))
    np.testing.assert_allclose(unseen, [[-0.001 / least, -0.999 / least, 1 / least, 0]])
    common = fs.FedTabularEncoder(rare=0.001).fit(frame)
    np.testing.assert_allclose(common.scale_[:2], np.sqrt(0.001 * 0.999))


def test_names_that_few_rows_of_a_site_hold_do_not_leave_it():
    frame = pd.DataFrame({"user": ["root"] * 6 + ["alice", "bob"]})
    sites = [0, 0, 0, 1, 1, 1, 0, 1]
    assert fs.FedTabularEncoder(min_count=2).fit(frame, sites=sites).categories_ == {"user": ("root",)}
    assert fs.FedTabularEncoder().fit(frame, sites=sites).categories_ == {"user": ("alice", "bob", "root")}


def requested(encoder):
    return [call.step for call in encoder.run_.calls]


def test_fixed_names_are_not_requested():
    frame = pd.DataFrame({"proto": ["tcp", "udp", "x", "-"], "port": [80, 443, 80, 53], "size": [1.0, 2.0, 3.0, 4.0]})
    fixed = fs.FedTabularEncoder(categories={"proto": ["udp", "tcp", "gre", "tcp"], "port": [80, "443"]}, scale=False)
    encoded = fixed.fit_transform(frame, sites=[0, 1, 0, 1])
    assert fixed.categories_ == {"proto": ("udp", "tcp", "gre"), "port": ("80", "443")}
    assert requested(fixed) == [
        "sums.columns",
        "tables.cell_counts",
        "tables.power_sums",
        "tables.category_counts",
        "sums.moments",
    ]
    expected = [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_array_equal(encoded[:, :5], expected)
    np.testing.assert_array_equal(encoded[:, 5:8], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    by_number = fs.FedTabularEncoder(categories={0: ["udp", "tcp", "gre"], 1: ["80", "443"]}, scale=False)
    np.testing.assert_array_equal(by_number.fit_transform(frame.to_numpy()), encoded)
    open_ = fs.FedTabularEncoder(categories={"port": [80]}).fit(frame)
    assert "tables.category_names" in requested(open_)
    closed = fs.FedTabularEncoder(categories={"port": [80]}, categorical=[]).fit(frame)
    assert "tables.category_names" not in requested(closed)


def test_a_fixed_mark_of_missing_values_stands_for_all_of_them():
    frame = pd.DataFrame({"service": ["-", "dns", None, "http"]})
    encoder = fs.FedTabularEncoder(categories={"service": ["-", "dns"]}, scale=False, missing="mean")
    np.testing.assert_array_equal(encoder.fit_transform(frame), [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert encoder.get_feature_names_out().tolist() == ["service_(missing)", "service_dns", "service_(other)"]
    both = fs.FedTabularEncoder(categories={"service": ["-", "dns"]}, scale=False).fit_transform(frame)
    np.testing.assert_array_equal(both, encoder.transform(frame))


def test_columns_are_text_if_they_are_said_to_be():
    frame = pd.DataFrame({"port": [80, 443, 80], "proto": ["tcp", "6", "17"]})
    assert fs.FedTabularEncoder().fit(frame).categories_ == {}
    named = fs.FedTabularEncoder(categorical=["port"]).fit(frame)
    assert named.categories_ == {"port": ("443", "80")}
    assert fs.FedTabularEncoder(categorical=np.array([0, 1])).fit(frame).categories_.keys() == {"port", "proto"}
    assert fs.FedTabularEncoder(categorical=["x1"]).fit(frame.to_numpy()).categories_ == {"x1": ("17", "6", "tcp")}
    assert named.missing_.tolist() == [False, True]  # "tcp" is no number


def test_which_logarithms_are_taken():
    frame = traffic()
    logs = {
        option: fs.FedTabularEncoder(log=option).fit(frame).log_.tolist()
        for option in ("auto", True, False, ("level", 3))
    }
    assert logs["auto"] == [True, True, False, False, False, False]
    assert logs[True] == [True] * 4 + [False] * 2
    assert logs[False] == [False] * 6
    assert logs["level", 3] == [False, False, True, True, False, False]
    np.testing.assert_allclose(
        fs.FedTabularEncoder(log=["level"], scale=False).fit_transform(frame)[:, 2], signed_log(frame["level"])
    )
    assert "tables.power_sums" not in requested(fs.FedTabularEncoder(log=True).fit(frame))


def messy_sites():
    """Four sites that agree on the columns and on little else."""
    rng = np.random.default_rng(5)
    n = 40
    common = {
        "ip": [f"10.0.{i % 5}.{i}" for i in range(n)],
        "proto": rng.choice(["tcp", "udp"], n),
        "bytes": rng.lognormal(6, 3, n),
        "rate": rng.lognormal(1, 1, n),
        "flag": rng.random(n) < 0.5,
        "constant": 1,
        "empty": np.nan,
        "depth": rng.integers(0, 4, n),
    }
    a = pd.DataFrame(common)
    b = a.assign(proto=pd.Categorical(rng.choice(["icmp", "tcp"], n)), bytes=a["bytes"].map("{:.1f}".format))
    b.loc[:4, "rate"] = np.inf
    b["flag"] = np.where(b["flag"], "True", "False")
    c = a.assign(bytes="unknown", proto=None, depth="-", rate=a["rate"].astype(np.float32))
    d = a.assign(depth=rng.choice(["0", "-", "3", ""], n), empty="", constant=pd.array([1, None] * 20, dtype="Int64"))
    return [fs.Site(name, frame) for name, frame in zip("abcd", (a, b, c, d), strict=True)]


def test_sites_that_disagree_about_types_and_names():
    fed = fs.LocalFederation(messy_sites())
    encoder = fs.FedTabularEncoder(rare=0.0).fit(fed)
    assert encoder.sites_ == ("a", "b", "c", "d")
    assert encoder.run_.failures == []
    assert encoder.categories_.keys() == {"ip", "proto"}
    assert encoder.categories_["proto"] == ("icmp", "tcp", "udp")
    assert dict(zip(encoder.feature_names_in_, encoder.missing_.tolist(), strict=True)) == {
        "ip": False,
        "proto": True,
        "bytes": True,
        "rate": True,
        "flag": False,
        "constant": True,
        "empty": True,
        "depth": True,
    }
    rows = np.concatenate([encoder.transform(site.frame) for site in messy_sites()])
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-12)
    constant = [*("ip_(other)", "proto_(other)", "constant", "empty", "empty_(missing)", "(unexpected missing)")]
    varied = ~np.isin(encoder.get_feature_names_out(), constant)
    np.testing.assert_allclose(rows[:, varied].std(axis=0), 1.0)
    names = encoder.get_feature_names_out().tolist()
    by_site = rows.reshape(4, 40, -1)
    assert (by_site[2, :, names.index("bytes")] == 0).all()  # "unknown" is no number
    assert (by_site[2, :, names.index("bytes_(missing)")] > 1).all()
    assert (by_site[2, :, names.index("proto_(missing)")] > 1).all()
    first = encoder.transform(messy_sites()[0].frame.assign(empty=1e9))
    assert abs(first[0, names.index("empty")]) < 30  # of a column without variance the logarithm


def test_a_federation_is_transformed_where_its_rows_are():
    sites = messy_sites()
    fed = fs.LocalFederation(sites)
    encoder = fs.FedTabularEncoder().fit(fed)

    @fs.step
    def rows(site):
        blocks = np.concatenate([batch.X for batch in site.batches(7)])
        return {"X": site.X, "blocks": blocks, "named": site.frame is not None or site.feature_names is not None}

    replies = encoder.transform(fed).ask(rows)
    for site in sites:
        expected = encoder.transform(site.frame)
        np.testing.assert_array_equal(replies[site.name]["X"], expected)
        np.testing.assert_array_equal(replies[site.name]["blocks"], expected)
        assert not replies[site.name]["named"]
    swapped = fs.LocalFederation([fs.Site("a", sites[0].frame.iloc[:, ::-1])])
    np.testing.assert_array_equal(encoder.transform(swapped).ask(rows)["a"]["X"], replies[sites[0].name]["X"])
    others = fs.LocalFederation([fs.Site("a", sites[0].frame.iloc[:, 1:])])
    with pytest.raises(fs.errors.QuorumError, match="this transform was fitted on"):
        encoder.transform(others).ask(rows)
    narrow = fs.LocalFederation([fs.Site("a", np.zeros((3, 2)))])
    with pytest.raises(fs.errors.QuorumError, match="must have 8 columns"):
        encoder.transform(narrow).ask(rows)


def test_pipelines_on_federations_and_tables():
    frame = traffic()
    sites = np.arange(400) % 5
    by_federation = make_pipeline(fs.FedTabularEncoder(), fs.FedPCA(3)).fit(fs.federate(frame, sites=sites))
    by_table = make_pipeline(fs.FedTabularEncoder(), fs.FedPCA(3)).fit(frame, fedtabularencoder__sites=sites)
    pooled = make_pipeline(fs.FedTabularEncoder(), PCA(3)).fit(frame)
    for model in (by_federation, by_table):
        np.testing.assert_allclose(model[-1].components_, pooled[-1].components_, atol=1e-8)
    again = make_pipeline(fs.FedTabularEncoder(), fs.FedStandardScaler(), fs.FedTabularEncoder()).fit(
        fs.federate(frame, sites=sites)
    )
    assert again[-1].n_features_in_ == len(pooled[0].mean_)


def test_output_as_a_frame_and_labels_that_are_all_different():
    frame = pd.DataFrame({"a": ["b_c", "(other)", "-", "b"], "a_b": ["c", "c", "d", "c"]})
    encoder = fs.FedTabularEncoder().set_output(transform="pandas").fit(frame)
    assert encoder.transform(frame).columns.tolist() == [
        *("a_(other)", "a_b", "a_b_c", "a_(other)_", "a_(missing)"),
        *("a_b_c_", "a_b_d", "a_b_(other)"),
        "(unexpected missing)",
    ]


def test_saved_and_loaded_with_all_that_was_learned(tmp_path):
    frame = with_gaps(traffic())
    models = [
        fs.FedTabularEncoder(categories={"proto": ["tcp"], 5: ["FIN"]}, log=["bytes"], aggregator=CoordinateMedian()),
        fs.FedTabularEncoder(scale=False, categorical=["flag", 4, 5]),
    ]
    for model in models:
        model.fit(frame, sites=np.arange(400) % 3).save(tmp_path / "model")
        loaded = fs.load(tmp_path / "model")
        assert loaded.get_params() == model.get_params()
        assert loaded.categories_ == model.categories_
        np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
        assert (tmp_path / "model").stat().st_size < 50_000


ATTACKS = [
    fs.attacks.ScaledReverse(1e6),
    fs.attacks.RandomNoise(1e12),
    fs.attacks.SignFlip(),
    fs.attacks.NonFinite(),
    fs.attacks.WrongShape(),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_with_an_aggregator_a_minority_of_malicious_sites_moves_nothing_far(attack):
    frame, sites = traffic(900), np.arange(900) % 9
    honest = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(frame, sites=sites)
    fed = fs.federate(frame, sites=sites).corrupt(attack, sites=["1", "4", "7"])
    attacked = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(fed)
    assert attacked.categories_ == honest.categories_
    np.testing.assert_array_equal(attacked.log_, honest.log_)
    np.testing.assert_allclose(attacked.transform(frame), honest.transform(frame), atol=0.5, rtol=0.3)


class RandomReplies:
    """Send counts, sums and names at random, as large as can travel."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, replies, bad, rng, call):
        return {site: {key: self.corrupted(value) for key, value in replies[site].items()} for site in bad}

    def corrupted(self, value):
        if self.rng.random() < 0.4:
            return value
        if isinstance(value, str):
            return str(self.rng.choice(["", "\n\n", "junk\njunk", "a\n" * 300, value + "\nx"]))
        whole = isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind == "i")
        values = [-(2**62), 2**62, -1, 0, 5] if whole else [1e308, -1e308, 1e150, -1e70, 1e-300, 0.0]
        sent = self.rng.choice(values, np.shape(value))
        return sent if isinstance(value, np.ndarray) else sent.item()


@pytest.mark.filterwarnings("ignore:left out")
@pytest.mark.parametrize("seed", range(6))
def test_with_an_aggregator_false_counts_and_names_move_nothing_far(seed):
    frame, sites = traffic(900), np.arange(900) % 9
    honest = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(frame, sites=sites)
    fed = fs.federate(frame, sites=sites).corrupt(RandomReplies(seed), sites=["1", "4", "7"])
    attacked = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(fed)
    np.testing.assert_array_equal(attacked.log_, honest.log_)
    tables = [
        pd.DataFrame(model.transform(frame), columns=model.get_feature_names_out()) for model in (honest, attacked)
    ]
    assert not set(tables[0]) - set(tables[1])
    assert tables[1].shape[1] < 60
    np.testing.assert_allclose(tables[1][list(tables[0])], tables[0], atol=0.5, rtol=0.3)


def test_with_an_aggregator_odd_tables_of_a_minority_change_nothing():
    frame = traffic(900)
    sites = [fs.Site(str(i), frame.iloc[i::9]) for i in range(9)]
    odd = frame.iloc[::9].assign(bytes="lots", level=None, proto=[f"fake-{i}" for i in range(100)])
    spoilt = [fs.Site("1", odd), fs.Site("4", odd), *(site for site in sites if site.name not in "14")]
    honest = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(fs.LocalFederation(sites))
    attacked = fs.FedTabularEncoder(aggregator=CoordinateMedian()).fit(fs.LocalFederation(spoilt))
    kept = {
        column: tuple(name for name in names if "fake" not in name) for column, names in attacked.categories_.items()
    }
    assert kept == honest.categories_
    assert len(attacked.categories_["proto"]) <= 32
    assert set(frame.columns[attacked.missing_]) == {"bytes", "level"}  # where the odd ones have no numbers
    np.testing.assert_array_equal(attacked.log_, honest.log_)


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_without_an_aggregator_attacks_end_in_numbers_or_a_refusal(attack):
    frame = traffic(90)
    fed = fs.federate(frame, sites=np.arange(90) % 9).corrupt(attack, sites=["1", "4"])
    try:
        encoder = fs.FedTabularEncoder().fit(fed)
    except InputError as error:
        assert "wrong sums" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(encoder.transform(frame)).all()
        assert encoder.transform(frame).shape[1] < 100


def test_a_site_that_floods_the_union_is_left_out_of_all_that_follows():
    def flood(replies, bad, rng, call):
        names = "\n".join(f"junk {i}" for i in range(5000))
        reply = {"names": names, "sizes": np.array([5000, 0])}
        return {site: reply if call.step == "tables.category_names" else replies[site] for site in bad}

    frame, labels = traffic(90), np.arange(90) % 9
    fed = fs.federate(frame, sites=labels).corrupt(flood, sites=["4"])
    with pytest.warns(UserWarning, match="left out, because they sent names of categories that they may not send: 4"):
        encoder = fs.FedTabularEncoder(log=False).fit(fed)
    assert encoder.sites_ == tuple("01235678")
    assert "this site sent 5000 names of one column, and may send 256" in encoder.run_.failures[0][2]
    rest = fs.FedTabularEncoder(log=False).fit(frame[labels != 4])
    assert encoder.categories_ == rest.categories_
    np.testing.assert_allclose(encoder.mean_, rest.mean_, rtol=1e-11)


def test_sites_that_drop_out_on_the_way_cost_their_rows():
    frame = with_gaps(traffic(90))
    labels = np.arange(90) % 9

    class DropsFrom:
        def __init__(self, step):
            self.step = step
            self.offline = False

        def __call__(self, replies, bad, rng, call):
            self.offline |= self.step == call.step
            return dict.fromkeys(bad) if self.offline else {}

    tables = ("tables.cell_counts", "tables.power_sums", "tables.category_names", "tables.category_counts")
    for step in (*tables, "sums.moments"):
        fed = fs.federate(frame, sites=labels).corrupt(DropsFrom(step), sites=["4"])
        encoder = fs.FedTabularEncoder().fit(fed)
        assert encoder.n_samples_seen_ == 80
        assert np.isfinite(encoder.transform(frame)).all()
    rest = fs.FedTabularEncoder().fit(frame[labels != 4])
    gone = fs.federate(frame, sites=labels).corrupt(DropsFrom("tables.cell_counts"), sites=["4"])
    np.testing.assert_allclose(fs.FedTabularEncoder().fit(gone).mean_, rest.mean_, rtol=1e-11)


def test_wire_threads_and_order_of_sites_change_no_bit():
    results = []
    for options in ({}, {"wire": True}, {"n_jobs": 3}, {"wire": True, "n_jobs": 2}):
        sites = messy_sites()
        fed = fs.LocalFederation(sites[::-1] if options else sites, **options)
        encoder = fs.FedTabularEncoder().fit(fed)
        pca = fs.FedPCA(2).fit(encoder.transform(fed))
        results.append(
            (encoder.mean_.tobytes(), encoder.scale_.tobytes(), encoder.categories_, pca.components_.tobytes())
        )
    assert all(result == results[0] for result in results)


def test_a_killed_fit_on_frames_continues(tmp_path):
    first = fs.FedTabularEncoder().fit(fs.LocalFederation(messy_sites(), run_dir=tmp_path))
    journal = tmp_path / "run-000" / "journal"
    whole = journal.read_bytes()
    for cut in (200, len(whole) // 2, len(whole) - 300):
        journal.write_bytes(whole[:cut])
        again = fs.FedTabularEncoder().fit(fs.LocalFederation(messy_sites(), run_dir=tmp_path))
        assert again.mean_.tobytes() == first.mean_.tobytes()
        assert again.categories_ == first.categories_
    other = messy_sites()
    other[0] = fs.Site("a", other[0].frame.assign(proto="gre"))
    with pytest.raises(fs.errors.JournalError):
        fs.FedTabularEncoder().fit(fs.LocalFederation(other, run_dir=tmp_path))


def test_empty_sites_and_extreme_numbers_are_harmless():
    frame = pd.DataFrame({"a": [1e300, -1e300, 1e69, 5.0], "b": ["x", "y", "x", "9" * 500]})
    fed = fs.LocalFederation([fs.Site("full", frame), fs.Site("empty", frame.iloc[:0])])
    encoder = fs.FedTabularEncoder().fit(fed)
    assert np.isfinite(encoder.transform(frame)).all()
    assert encoder.missing_.tolist() == [True, True]
    assert np.isfinite(fs.FedTabularEncoder(log=False).fit_transform(frame)).all()
    with pytest.raises(InputError, match="no rows"):
        fs.FedTabularEncoder().fit(fs.LocalFederation([fs.Site("empty", frame.iloc[:0])]))


BAD = {
    "log name": ({"log": "yes"}, "log='yes' must be"),
    "log number": ({"log": 1}, "log=1 must be"),
    "log of text": ({"log": ["proto"]}, "'proto', which is text"),
    "log of nothing": ({"log": ["size"]}, "log names the column 'size', and the table has 6 columns: bytes, delta"),
    "categorical name": ({"categorical": "proto"}, "categorical='proto' must be"),
    "categorical number": ({"categorical": [6]}, "the column 6"),
    "categorical bool": ({"categorical": [True]}, "the column True"),
    "categories list": ({"categories": [["tcp"]]}, "must be a dict of columns and their names, or None"),
    "categories text": ({"categories": {"proto": "tcp"}}, "categories['proto']='tcp' must be a list of names"),
    "categories column": ({"categories": {"protocol": ["tcp"]}}, "'protocol'"),
    "categories twice": ({"categories": {"proto": ["tcp"], 4: ["udp"]}}, "'proto' twice"),
    "max_categories": ({"max_categories": 0}, "max_categories=0 must be"),
    "min_count": ({"min_count": 1.5}, "min_count=1.5 must be"),
    "rare": ({"rare": 0.7}, "rare=0.7 must be"),
    "unknown": ({"unknown": "error"}, "unknown='error' must be one of 'other', 'zero'"),
    "missing": ({"missing": "median"}, "missing='median' must be"),
    "scale": ({"scale": "yes"}, "scale='yes' must be"),
    "aggregator": ({"aggregator": CoordinateMedian}, "aggregator="),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_parameters_are_refused(what):
    parameters, message = BAD[what]
    with pytest.raises(InputError) as raised:
        fs.FedTabularEncoder(**parameters).fit(traffic(30))
    assert message in str(raised.value)


def test_invalid_tables_are_refused():
    frame = traffic(30)
    with pytest.raises(InputError, match="same name"):
        fs.FedTabularEncoder().fit(pd.concat([frame, frame["proto"]], axis=1))
    with pytest.raises(InputError, match=r"shape \(0, 6\)"):
        fs.FedTabularEncoder().fit(frame.iloc[:0])
    with pytest.raises(ValueError, match="feature names"):
        fs.FedTabularEncoder().fit(frame).transform(frame.rename(columns={"proto": "protocol"}))
    with pytest.raises(fs.errors.QuorumError, match="complex128"):
        fs.FedTabularEncoder().fit(frame.assign(level=1j))


def test_honest_gaps_of_a_minority_are_not_outvoted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400).astype(object)})
    sites = np.arange(400) % 10
    frame.loc[sites < 3, "b"] = None
    encoder = fs.FedTabularEncoder(aggregator=fs.aggregation.CoordinateMedian()).fit(frame, sites=sites)
    assert encoder.missing_.tolist() == [False, True]
    np.testing.assert_array_equal(encoder.transform(frame)[:, -1], 0.0)
