"""Every estimator against scikit-learn's own checks, and against what our estimators promise."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedspan as fs
from fedspan.errors import InputError
from tests.laws.estimator_examples import CLASSES, assert_same_fit, make, table, target_of

#: Checks of scikit-learn's that an estimator cannot pass, with the reason.
FIT_LAYS_OUT = "fit lays rows out, and transform places them by their neighbours: that is not the same"
EXPECTED_TO_FAIL: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        ("FedTSNE", "FedUMAP"),
        dict.fromkeys(("check_transformer_general", "check_transformer_data_not_an_array"), FIT_LAYS_OUT),
    ),
    "FedPCA": dict.fromkeys(
        ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
        "fewer rows than columns: components without variance are arbitrary, and rows of weight 0 have coordinates "
        "along them",
    ),
    "FedMixedRegressor": {
        "check_methods_sample_order_invariance": "it sets n_clusters=2, and a table without sites is one site"
    },
}


@parametrize_with_checks(
    # The targets of survival are two columns, time and event, which none of these checks has.
    [make(kind) for kind in CLASSES if not kind.learns_target],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL.get(type(estimator).__name__, {}),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


every_estimator = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


@every_estimator
def test_a_table_with_sites_is_the_federation_of_its_rows(kind):
    X, labels = table()
    Y = target_of(kind)
    by_table = make(kind, random_state=3).fit(X, Y, sites=labels)
    by_federation = make(kind, random_state=3).fit(fs.federate(X, Y, sites=labels))
    assert_same_fit(by_table, by_federation, np.argsort(labels, kind="stable"))
    assert by_table.sites_ == ("0", "1", "2", "3")
    assert by_table.run_.sites == ("0", "1", "2", "3")
    sent = [
        [(call.step, call.how, call.bytes_down, call.bytes_up) for call in model.run_.calls]
        for model in (by_table, by_federation)
    ]
    assert sent[0] == sent[1]


@every_estimator
def test_row_order_within_nothing_changes_but_rounding_and_label_order_changes_nothing(kind):
    X, labels = table()
    Y = target_of(kind)
    names = np.array(["c", "a", "d", "b"])[labels]
    one = make(kind, random_state=3).fit(X, Y, sites=names)
    order = np.argsort(names, kind="stable")
    two = make(kind, random_state=3).fit(X[order], Y[order], sites=names[order])
    assert_same_fit(one, two, order)


@every_estimator
def test_save_and_load_are_exact(kind, tmp_path):
    import pandas as pd

    X, labels = table()
    Y = target_of(kind)
    frame = pd.DataFrame(X, columns=[f"feature {i}" for i in range(X.shape[1])])
    model = make(kind, random_state=3).fit(frame, Y, sites=labels)
    model.save(tmp_path / "model")
    loaded = fs.load(tmp_path / "model")
    assert_same_fit(model, loaded)
    assert loaded.get_params() == model.get_params()
    assert loaded.run_ == model.run_
    for method in ("transform", "predict", "score_samples"):
        if hasattr(model, method):
            by_site = method == "transform" and "sites" in inspect.signature(model.transform).parameters
            more = {"sites": labels} if by_site else {}
            np.testing.assert_array_equal(getattr(loaded, method)(frame, **more), getattr(model, method)(frame, **more))
    clone(loaded).fit(frame, Y, sites=labels)
    model.save(tmp_path / "again")
    loaded.save(tmp_path / "once more")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "once more").read_bytes()


@every_estimator
def test_a_resumed_fit_is_the_same_fit(kind, tmp_path):
    X, labels = table()
    Y = target_of(kind)
    first = make(kind).fit(fs.federate(X, Y, sites=labels, seed=5, run_dir=tmp_path))
    journal = tmp_path / "run-000" / "journal"
    journal.write_bytes(journal.read_bytes()[:-200])
    assert_same_fit(make(kind).fit(fs.federate(X, Y, sites=labels, seed=5, run_dir=tmp_path)), first)
    with pytest.raises(fs.errors.JournalError, match="random_state"):
        make(kind, random_state=9).fit(fs.federate(X, Y, sites=labels, seed=5, run_dir=tmp_path))


@every_estimator
def test_bad_input_is_refused_with_a_sentence(kind):
    X, labels = table()
    Y = target_of(kind)
    with pytest.raises(InputError, match="one label for each of the 60 rows"):
        make(kind).fit(X, Y, sites=labels[:-1])
    with pytest.raises(InputError, match="a federation has its sites already"):
        make(kind).fit(fs.federate(X, Y, sites=labels), sites=labels)
    if get_tags(make(kind)).input_tags.allow_nan:
        return
    broken = X.copy()
    broken[7, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        make(kind).fit(broken, Y, sites=labels)
    with pytest.raises(InputError, match=r"NaN or infinity: feature number 2 at site '3' \(1 values\)"):
        make(kind).fit(fs.federate(broken, Y, sites=labels))


@every_estimator
def test_a_site_with_other_columns_is_left_out_with_a_warning(kind):
    X, labels = table()
    Y = target_of(kind)
    sites = [fs.Site(str(i), X[labels == i], Y[labels == i]) for i in range(3)]
    odd = fs.Site("odd", np.ones((5, 9)), np.ones(5))
    with pytest.warns(UserWarning, match="odd"):
        model = make(kind, random_state=1).fit(fs.LocalFederation([*sites, odd]))
    assert model.sites_ == ("0", "1", "2")
    assert_same_fit(model, make(kind, random_state=1).fit(fs.LocalFederation(sites)))


@every_estimator
def test_verbose_shows_progress_only_on_standard_error(kind, capsys, monkeypatch):
    from fedspan import progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BETWEEN_LINES", 0.0)
    X, labels = table()
    Y = target_of(kind)
    make(kind, verbose=1).fit(X, Y, sites=labels)
    shown = capsys.readouterr()
    assert f"{kind.__name__}: call 1" in shown.err
    assert shown.out == ""
    make(kind).fit(X, Y, sites=labels)
    assert capsys.readouterr().err == ""


def test_names_of_columns_pass_through_transforms():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["age", "dose"])
    frame["ward"] = ["A", "B", "A"] * 10
    fed = fs.federate(frame, sites=np.arange(30) % 3)
    encoder = fs.FedTabularEncoder().fit(fed)
    scaler = fs.FedStandardScaler().fit(encoder.transform(fed))
    encoded = list(encoder.get_feature_names_out())
    assert list(scaler.names_before_) == encoded
    assert not hasattr(scaler, "feature_names_in_")  # tables behind an encoder are arrays without names
    adjusted = fs.FedComBat(covariates=["age"]).fit(scaler.transform(encoder.transform(fed)))
    assert adjusted.covariates_.tolist() == [encoded.index("age")]
    scaler.fit(fs.federate(frame[["age", "dose"]].to_numpy()))
    assert not hasattr(scaler, "names_before_")


TRUTH_VALUES = [
    (name, parameter.name)
    for name in fs.__all__
    if name.startswith("Fed") and name != "Federation"
    for parameter in inspect.signature(getattr(fs, name)).parameters.values()
    if isinstance(parameter.default, bool)
]


@pytest.mark.parametrize(("estimator", "name"), TRUTH_VALUES)
def test_a_word_is_no_truth_value(estimator, name):
    model = getattr(fs, estimator)(**{name: "no"})
    X = np.random.default_rng(0).normal(size=(60, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0] if get_tags(model).target_tags.required else None
    with pytest.raises(InputError, match=f"{name}='no' must be True or False"):
        model.fit(X, y, sites=np.arange(60) % 3)


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2020-01-01", periods=60),
        pd.date_range("2020-01-01", periods=60, tz="UTC"),
        pd.timedelta_range("1D", periods=60),
        pd.period_range("2020-01", periods=60),
        pd.interval_range(0, 60),
    ],
    ids=["dates", "dates with a zone", "durations", "periods", "intervals"],
)
def test_columns_of_times_are_named_with_the_encoder_as_the_way_out(times):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"]).assign(when=times)
    sentence = r"^X holds times in column 'when', and FedPCA takes numbers: .*FedTabularEncoder"
    with pytest.raises(InputError, match=sentence):
        fs.FedPCA(1).fit(frame, sites=np.arange(60) % 3)
    fs.FedTabularEncoder().fit(frame, sites=np.arange(60) % 3)


def test_columns_of_one_name_are_refused_wherever_a_table_comes_in():
    """Columns are matched by name: of two with one name, a site in another order would send the wrong one."""
    frame = pd.DataFrame(np.ones((6, 3)), columns=["a", "b", "a"])
    with pytest.raises(InputError, match="X has two columns named 'a': rename one of them"):
        fs.FedPCA(1).fit(frame, sites=[0, 1] * 3)
    with pytest.raises(InputError, match="site '0': X has two columns named 'a': rename one of them"):
        fs.federate(frame, sites=[0, 1] * 3)


def test_a_table_without_columns_and_a_target_of_times_are_refused():
    with pytest.raises(InputError, match="X has no columns"):
        fs.FedPCA(1).fit(pd.DataFrame(index=range(6)))
    with pytest.raises(InputError, match="y holds times or other things, and FedLinearRegression takes numbers"):
        fs.FedLinearRegression().fit(np.ones((6, 1)), list(pd.date_range("2020-01-01", periods=6)))


def test_a_notebook_shows_no_signs_that_turn_a_text():
    """The table of features that scikit-learn adds had the names of columns as sites send them."""
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 2)), columns=["dose\u202e", "age\x1b[2J"])
    shown = fs.FedStandardScaler().fit(rows, sites=np.arange(12) % 3)._repr_html_()
    assert "dose" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
