"""Mechanisms as the parameter ``privacy`` of estimators: the same bytes on every path, what is spent and recorded."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import fedspan as fs
from fedspan.cli.study.study_file import read_study
from fedspan.errors import InputError, PolicyError, QuorumError
from fedspan.federation import PrivacySpent, RunRecord
from fedspan.landmarks.private_feddl import MOMENTS, POSTED
from fedspan.privacy import GaussianCenters, GaussianData, GaussianGradient, Ledger, PaperNoise, epsilon_of
from fedspan.privacy.run_privacy import FRONT
from fedspan.report import write_report

from .mechanism_examples import COVERED, DATA, GRADIENT, MECHANISMS, landmarks, sites_with_ledgers, table


@pytest.mark.parametrize("privacy", MECHANISMS, ids=lambda p: type(p).__name__)
def test_wire_and_threads_change_nothing(privacy):
    X, labels = table()
    first = landmarks(privacy, fs.federate(X, sites=labels)).landmarks_
    for options in ({"wire": True}, {"n_jobs": 3}):
        assert landmarks(privacy, fs.federate(X, sites=labels, **options)).landmarks_.tobytes() == first.tobytes()


@pytest.mark.parametrize("privacy", [COVERED, GRADIENT, DATA], ids=["covered", "gradient", "data"])
def test_a_second_fit_gives_the_same_and_costs_nothing(privacy, tmp_path):
    first = landmarks(privacy, fs.LocalFederation(sites_with_ledgers(tmp_path)))
    before = [site.ledger.cost for site in sites_with_ledgers(tmp_path)]
    again = landmarks(privacy, fs.LocalFederation(sites_with_ledgers(tmp_path), wire=True, seed=7))
    assert again.landmarks_.tobytes() == first.landmarks_.tobytes()
    ledgers = [site.ledger for site in sites_with_ledgers(tmp_path)]
    assert [ledger.cost for ledger in ledgers] == before
    assert all(ledger.spent == pytest.approx(privacy.epsilon) for ledger in ledgers)
    assert {len(ledger.charges) for ledger in ledgers} == {1 if privacy is DATA else 4}
    assert first.privacy_.simulated == ()
    assert "simulated" not in first.run_.summary()


@pytest.mark.parametrize("privacy", [COVERED, DATA], ids=["gradient", "data"])
def test_a_resumed_run_is_the_same_run(privacy, tmp_path):
    class KilledError(Exception):
        pass

    class Kill(fs.federation.Observer):
        def round(self, number, of):
            if number == 2:
                raise KilledError

    expected = landmarks(privacy, fs.LocalFederation(sites_with_ledgers(tmp_path), run_dir=tmp_path / "whole"))
    fed = fs.LocalFederation(sites_with_ledgers(tmp_path), run_dir=tmp_path / "cut")
    fed.observe(Kill())
    with pytest.raises(KilledError):
        landmarks(privacy, fed)
    resumed = landmarks(privacy, fs.LocalFederation(sites_with_ledgers(tmp_path), run_dir=tmp_path / "cut"))
    assert resumed.landmarks_.tobytes() == expected.landmarks_.tobytes()
    assert any(call.replayed for call in resumed.run_.calls)
    assert resumed.privacy_ == expected.privacy_
    assert sites_with_ledgers(tmp_path)[0].ledger.spent == pytest.approx(privacy.epsilon)


def test_secrets_decide_the_noise_and_seeds_do_not(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    a, b = (landmarks(COVERED, fs.LocalFederation(sites_with_ledgers(folder))) for folder in folders)
    assert a.landmarks_.tobytes() != b.landmarks_.tobytes()


def test_under_secure_sums_it_is_the_same(tmp_path):
    pytest.importorskip("cryptography")
    # one round: a secure sum has other last bits, and later rounds start from other landmarks
    model = fs.FedLandmarks(12, rounds=1, privacy=COVERED, random_state=0)
    plain = model.fit(fs.LocalFederation(sites_with_ledgers(tmp_path))).landmarks_
    fed = fs.LocalFederation(sites_with_ledgers(tmp_path), policy=fs.Policy(secure_sum=True))
    np.testing.assert_allclose(model.fit(fed).landmarks_, plain, atol=1e-9)
    assert {len(site.ledger.charges) for site in sites_with_ledgers(tmp_path)} == {1}
    with pytest.raises(PolicyError, match="PaperNoise"):
        landmarks(PaperNoise(), fed)


@pytest.mark.parametrize(("steps", "upload"), [(1, "landmarks"), (3, "gradient"), (3, "landmarks")])
def test_local_steps_and_landmarks_are_within_the_same_epsilon(steps, upload, tmp_path):
    sites = sites_with_ledgers(tmp_path)
    model = landmarks(COVERED, fs.LocalFederation(sites), local_steps=steps, upload=upload)
    assert sites[0].ledger.spent == pytest.approx(40.0)
    assert model.privacy_.worst == pytest.approx(40.0)


def test_without_noise_to_speak_of_it_is_feddl():
    X, labels = table()
    plain = fs.FedLandmarks(12, rounds=4, momentum=0.0, step_size=0.5, random_state=0).fit(X, sites=labels)
    for privacy in (GaussianGradient(1e7, 0.1), GaussianData(1e7, 0.1, clip=20.0)):
        noisy = fs.FedLandmarks(12, rounds=4, momentum=0.0, step_size=0.5, privacy=privacy, random_state=0)
        # not the same step: under noise L is a bound
        assert np.abs(noisy.fit(X, sites=labels).landmarks_ - plain.landmarks_).max() < 1.0


def test_more_noise_less_fit():
    from fedspan.linalg.kernels.gaussian_kernel import mmd2

    X, labels = table(3000)

    def apart(epsilon, seed):
        privacy = GaussianGradient(epsilon, 1e-5)
        model = fs.FedLandmarks(12, rounds=20, privacy=privacy, random_state=seed).fit(X, sites=labels)
        return mmd2(X, model.landmarks_, model.gamma_)

    strong, weak = (np.mean([apart(epsilon, seed) for seed in range(3)]) for epsilon in (0.3, 30.0))
    assert strong > 2 * weak


def test_explicit_values_win():
    X, labels = table()
    weak = GaussianGradient(1000.0, 1e-5)
    default = fs.FedLandmarks(6, rounds=3, privacy=weak, random_state=0).fit(X, sites=labels).landmarks_
    same = fs.FedLandmarks(6, rounds=3, privacy=weak, momentum=0.0, step_size=1.0, random_state=0)
    other = fs.FedLandmarks(6, rounds=3, privacy=weak, momentum=0.9, random_state=0)
    assert np.array_equal(same.fit(X, sites=labels).landmarks_, default)
    assert not np.array_equal(other.fit(X, sites=labels).landmarks_, default)


@pytest.mark.parametrize(("steps", "upload"), [(1, "gradient"), (2, "gradient"), (2, "landmarks")])
def test_noise_does_not_carry_the_landmarks_away(steps, upload):
    X, labels = table()
    strong = GaussianGradient(0.1, 1e-5, center=0.5, scale=(2.0, 1.0, 1.0, 0.5))
    options = {"privacy": strong, "local_steps": steps, "upload": upload, "random_state": 0}
    spread = np.sqrt(4 + 1 + 1 + 0.25)
    start = fs.FedLandmarks(30, rounds=0, **options).fit(X, sites=labels).landmarks_
    by_default = fs.FedLandmarks(30, rounds=10, **options).fit(X, sites=labels).landmarks_
    by_hand = fs.FedLandmarks(30, rounds=10, step_size=1.0, **options).fit(X, sites=labels).landmarks_

    def moved(landmarks):
        return np.sqrt(((landmarks - start) ** 2).sum(axis=1).mean()) / spread

    assert 0.5 * np.sqrt(0.1) < moved(by_default) < 1.5 * np.sqrt(0.1)
    assert moved(by_hand) > 2.0


def test_the_steps_of_a_fit_with_noise_on_gradients():
    X, labels = table()
    steps = {call.step for call in landmarks(COVERED, fs.federate(X, sites=labels)).run_.calls}
    assert steps == {"sums.columns", "privacy.ledger", "landmarks.rows", "landmarks.noisy_pull"}
    steps = {call.step for call in landmarks(GRADIENT, fs.federate(X, sites=labels)).run_.calls}
    assert steps == {"sums.columns", "privacy.ledger", "sums.moments", "landmarks.noisy_pull"}


def test_the_record_states_what_is_covered_and_what_is_not():
    X, labels = table()
    spent = landmarks(GRADIENT, fs.federate(X, sites=labels)).privacy_
    assert spent.epsilon == pytest.approx({"0": 40.0, "1": 40.0, "2": 40.0})
    assert spent.accountant == pytest.approx(spent.epsilon, rel=0.05)
    assert spent.leaves_out == (MOMENTS,)
    assert spent.simulated == ("0", "1", "2")
    assert landmarks(COVERED, fs.federate(X, sites=labels)).privacy_.leaves_out == ()
    assert landmarks(None, fs.federate(X, sites=labels)).privacy_ is None
    for privacy, left_out in [(COVERED, (POSTED,)), (GRADIENT, (MOMENTS, POSTED)), (DATA, ())]:
        model = fs.FedSpectralClustering(2, n_landmarks=8, rounds=2, privacy=privacy).fit(X, sites=labels)
        assert model.privacy_.leaves_out == left_out


@pytest.mark.parametrize("kind", ["FedTSNE", "FedUMAP"])
def test_maps_take_a_mechanism(kind, tmp_path):
    pytest.importorskip("openTSNE" if kind == "FedTSNE" else "umap")
    X, labels = table(90)
    quick = {"n_iter": 20, "early_exaggeration_iter": 20} if kind == "FedTSNE" else {"n_epochs": 20}
    model = getattr(fs, kind)(8, rounds=2, privacy=DATA, random_state=0, **quick).fit(X, sites=labels)
    assert model.privacy_.covers == ("everything that is made of the rows",)
    model.save(tmp_path / "map")
    loaded = fs.load(tmp_path / "map")
    assert loaded.privacy == DATA
    assert loaded.privacy_ == model.privacy_
    assert np.array_equal(loaded.transform(X[:5]), model.transform(X[:5]))


def test_sites_that_do_not_report_real_noise_count_as_simulated(tmp_path):
    def silent(replies, bad, rng, call):
        return {site: None if call.step == "privacy.ledger" else replies[site] for site in bad}

    for privacy in (COVERED, DATA):
        fed = fs.LocalFederation(sites_with_ledgers(tmp_path)).corrupt(silent, sites=["1"])
        spent = landmarks(privacy, fed).privacy_
        assert spent.simulated == ("1",)
        assert "simulated at 1 of 3 sites" in spent.sentence()


@pytest.mark.parametrize("reported", [None, {"mu2": -1.0}, {"mu2": "none"}])
def test_sites_that_do_not_report_the_worth_of_the_paper_noise_have_no_bound(reported):
    def silent(replies, bad, rng, call):
        return {site: reported if call.step == "landmarks.paper_cost" else replies[site] for site in bad}

    X, labels = table()
    spent = landmarks(PaperNoise(), fs.federate(X, sites=labels).corrupt(silent, sites=["1"])).privacy_
    assert spent.epsilon["1"] == spent.worst == np.inf
    assert 0 < spent.epsilon["0"] < np.inf


@pytest.mark.parametrize("privacy", MECHANISMS, ids=lambda p: type(p).__name__)
def test_transforms_in_front_are_recorded_as_not_covered(privacy):
    X, labels = table()
    fed = fs.federate(X, sites=labels)
    scaled = fs.FedStandardScaler().fit(fed).transform(fed)
    spent = landmarks(privacy, scaled).privacy_
    assert FRONT in spent.leaves_out
    assert "does not cover" in spent.sentence()
    assert "the transforms in front" in spent.sentence()
    assert FRONT not in landmarks(privacy, fed).privacy_.leaves_out


def test_transforms_of_noisy_rows_are_covered():
    X, labels = table()
    noisy = landmarks(DATA, fs.federate(X, sites=labels)).transform(fs.federate(X, sites=labels))
    assert FRONT not in landmarks(GaussianData(200.0, 1e-5, clip=6.0), noisy).privacy_.leaves_out


def test_a_budget_that_does_not_last_is_a_warning_at_the_callers_line(tmp_path):
    fed = fs.LocalFederation(sites_with_ledgers(tmp_path, epsilon=0.5))
    with pytest.warns(UserWarning, match="does not last") as caught, pytest.raises(QuorumError):
        fs.FedLandmarks(12, rounds=4, privacy=COVERED, random_state=0).fit(fed)
    assert {warning.filename for warning in caught} == {__file__}


def test_no_rounds_cost_nothing():
    X, labels = table()
    spent = fs.FedLandmarks(5, rounds=0, privacy=COVERED).fit(X, sites=labels).privacy_
    assert spent.worst == 0.0
    assert max(spent.accountant.values()) == 0.0


def test_the_paper_noise_has_the_epsilon_that_it_has():
    X, labels = table()
    model = fs.FedLandmarks(12, rounds=1, privacy=PaperNoise(0.5), random_state=0).fit(X, sites=labels)
    start = fs.FedLandmarks(12, rounds=0, random_state=0).fit(X, sites=labels)
    Y, gamma = start.landmarks_, start.gamma_
    expected = {}
    for k in range(3):
        rows = X[labels == k]
        apart, own = rows[:, None] - Y, Y[:, None] - Y
        pull = np.einsum("ij,ijk->jk", np.exp(-gamma * (apart**2).sum(-1)), apart)
        back = np.einsum("ij,ijk->jk", np.exp(-gamma * (own**2).sum(-1)), own)
        gradient = -4 * gamma / (len(rows) * 12) * pull + 4 * gamma / (12 * 11) * back
        delta = 8 * gamma / (len(rows) * np.sqrt(12)) / np.sqrt(2 * np.e * gamma)
        expected[str(k)] = epsilon_of(delta / (0.5 * gradient.std()), 1e-5)
    assert model.privacy_.epsilon == pytest.approx(expected, rel=1e-4)
    assert not model.privacy_.guaranteed
    assert "no guarantee" in model.run_.summary()


def test_a_site_with_a_ledger_refuses_the_paper_noise(tmp_path):
    with pytest.raises(QuorumError, match="has no guarantee"):
        landmarks(PaperNoise(), fs.LocalFederation(sites_with_ledgers(tmp_path)))


def test_settings_that_cannot_work_are_refused_before_any_site_is_called():
    X, labels = table()
    cases = [
        ({"privacy": "strong"}, "privacy='strong' must be None, or"),
        ({"privacy": GaussianGradient}, "must be None, or"),
        ({"privacy": GaussianGradient(0, 1e-5)}, "epsilon=0"),
        ({"privacy": GaussianGradient(1, 1e-5, center=0.0)}, "go together"),
        ({"privacy": GaussianGradient(1, 1e-5, center=0.0, scale=-1.0)}, "standard deviations"),
        ({"privacy": GaussianData(1, 1e-5, clip=0)}, "clip=0"),
        ({"privacy": GaussianData(1, 1e-5, clip=1, center=[0.0, -(2.0**60)])}, "center has 1.15.*rounded away"),
        ({"privacy": PaperNoise(0)}, "beta=0"),
        ({"privacy": GRADIENT, "n_frequencies": 10}, "n_frequencies=10 must be 0"),
        ({"privacy": GRADIENT, "step_size": 2.5}, "step_size"),
    ]
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            fs.FedLandmarks(5, **options).fit(X, sites=labels)
    with pytest.raises(InputError, match="center has 2 numbers"):
        landmarks(GaussianGradient(1, 1e-5, center=[0, 0], scale=1), fs.federate(X, sites=labels))
    with pytest.raises(InputError, match="NaN"):
        GaussianData(1, 1e-5, 1.0, center=[np.nan])


def test_parameters_are_those_of_scikit_learn():
    model = fs.FedLandmarks(5, privacy=COVERED)
    assert clone(model).get_params()["privacy"] == COVERED
    assert "GaussianGradient(epsilon=40.0" in repr(model)
    many = GaussianData(1.0, 1e-5, 1.0, center=np.arange(100.0))
    assert "100 numbers #" in repr(many)
    assert repr(many) != repr(GaussianData(1.0, 1e-5, 1.0, center=np.arange(100.0) + 1e-9))


def test_two_fits_of_one_run_are_counted_both():
    X, labels = table()
    with fs.federate(X, sites=labels).begin("both") as run:
        fs.FedLandmarks(5, rounds=2, privacy=COVERED).fit(run)
        fs.FedSpectralClustering(2, n_landmarks=5, rounds=2, privacy=GRADIENT).fit(run)
        spent = run.record.privacy
    assert spent.worst == pytest.approx(80.0)
    assert spent.delta == pytest.approx(2e-5)
    assert spent.leaves_out == (MOMENTS, POSTED)


def test_records_keep_what_was_spent(tmp_path):
    X, labels = table()
    fed = fs.federate(X, sites=labels, run_dir=tmp_path)
    model = landmarks(PaperNoise(), fed)
    again = RunRecord.from_lines(model.run_.lines())
    assert again.privacy == model.privacy_
    written = RunRecord.from_lines((tmp_path / "run-000" / "record.jsonl").read_text().splitlines())
    assert written.privacy == model.privacy_
    endless = PrivacySpent("m", {"a": float("inf")}, 1e-5, {}, ("x",))
    record = RunRecord("demo", {}, 0, 0, ("a",), privacy=endless)
    assert RunRecord.from_lines(record.lines()).privacy == endless


def test_the_report_and_the_progress_show_what_was_spent(tmp_path, capsys):
    X, labels = table()
    model = landmarks(GRADIENT, fs.federate(X, sites=labels), verbose=1)
    assert "privacy: epsilon 40 (accountant: 40" in capsys.readouterr().err
    page = write_report(tmp_path / "r.html", title="t", records=model.run_).read_text()
    for text in ('id="privacy"', "does not cover", "this noise protects no row", "GaussianGradient(epsilon=40.0"):
        assert text in page
    plain = landmarks(None, fs.federate(X, sites=labels), verbose=1)
    assert "privacy" not in capsys.readouterr().err
    page = write_report(tmp_path / "p.html", title="t", records=plain.run_).read_text()
    assert "No noise was added" in page
    assert "GaussianGradient" not in page


STUDY = """
[data]
file = "rows.csv"
site_column = "where"
[model]
name = "FedLandmarks"
n_landmarks = 5
privacy = {}
"""


def test_a_study_names_its_mechanism(tmp_path):
    (tmp_path / "rows.csv").write_text("where,a\nx,1\n")

    def study(text):
        (tmp_path / "study.toml").write_text(STUDY.format(text))
        return read_study(tmp_path / "study.toml").model.privacy

    assert study('{ name = "GaussianGradient", epsilon = 8, delta = 1e-5 }') == GaussianGradient(8, 1e-5)
    assert study('{ name = "GaussianData", epsilon = 8.0, delta = 1e-5, clip = 2, center = [1, 2] }').center == (1, 2)
    for text, message in [
        ('"GaussianGradient"', "must be a table"),
        (
            '{ name = "Laplace", epsilon = 1 }',
            "one of GaussianCenters, GaussianData, GaussianGradient, GaussianMoments, PaperNoise",
        ),
        ('{ name = "GaussianGradient", epsilon = 1, clip = 2 }', "'clip' is not a known key"),
        ('{ name = "GaussianGradient", epsilon = 1 }', "delta"),
        ('{ name = "GaussianGradient", epsilon = -1, delta = 1e-5 }', "epsilon=-1"),
    ]:
        with pytest.raises(InputError, match=message):
            study(text)


def test_without_the_accountant_the_exact_figure_stands_alone(monkeypatch):
    import sys

    from fedspan.privacy import accounting

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    accounting._accountant_epsilon.cache_clear()
    X, labels = table()
    spent = landmarks(COVERED, fs.federate(X, sites=labels)).privacy_
    assert spent.accountant == {}
    assert "accountant" not in spent.sentence()


def test_a_site_whose_budget_ends_in_mid_run_has_spent_what_it_answered(tmp_path):
    X, labels = table()
    ledger = Ledger(tmp_path / "0.ledger", epsilon=1.0, delta=1e-5)
    sites = [fs.Site(str(k), X[labels == k], ledger=ledger if k == 0 else None) for k in range(3)]
    privacy = GaussianGradient(3.0, 1e-5, center=0.5, scale=1.5)
    with pytest.warns(UserWarning, match="budget of 0 does not last"):
        model = fs.FedLandmarks(10, rounds=20, privacy=privacy, random_state=0).fit(fs.LocalFederation(sites))
    spent = model.privacy_
    assert spent.epsilon["0"] == pytest.approx(ledger.spent)
    assert 0 < ledger.spent < 1.0
    assert spent.epsilon["1"] == pytest.approx(3.0)
    assert spent.accountant["0"] < 1.0
    assert spent.refused == ("0",)
    assert "0 refused when the budget there was spent" in spent.sentence()
    assert PrivacySpent.of(spent.values()) == spent
    assert (spent + spent).refused == ("0",)


@pytest.mark.parametrize(
    "model",
    [
        fs.FedLandmarks(10, rounds=3, privacy=GaussianData(3.0, 1e-5, clip=5.0)),
        fs.FedTSNE(n_landmarks=10, rounds=3, perplexity=5, n_iter=20, privacy=GaussianData(3.0, 1e-5, clip=5.0)),
        fs.FedTSNE(share="centers", privacy=GaussianCenters(30.0, 1e-5, clip=5.0)),
    ],
)
def test_a_site_that_refuses_for_its_budget_has_spent_nothing(tmp_path, model):
    X, labels = table()
    ledger = Ledger(tmp_path / "0.ledger", epsilon=0.1, delta=1e-5)
    sites = [fs.Site(str(k), X[labels == k], ledger=ledger if k == 0 else None) for k in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = model.set_params(random_state=0).fit(fs.LocalFederation(sites)).privacy_
    assert ledger.spent == 0.0
    assert spent.epsilon["0"] == spent.accountant["0"] == 0.0
    assert spent.epsilon["1"] == pytest.approx(model.privacy.epsilon)
    assert spent.refused == ("0",)


@pytest.mark.parametrize("kind", ["FedTSNE", "FedSpectralClustering"])
def test_a_map_that_a_strict_ledger_cannot_answer_costs_nothing(tmp_path, kind):
    sites = sites_with_ledgers(tmp_path, strict=True)
    model = getattr(fs, kind)(n_landmarks=10, rounds=5, privacy=COVERED, random_state=0)
    with pytest.raises(InputError, match=r"0, 1, 2 send nothing without noise .* use GaussianData"):
        model.fit(fs.LocalFederation(sites))
    assert [site.ledger.spent for site in sites] == [0.0] * 3
    assert landmarks(COVERED, fs.LocalFederation(sites)).landmarks_.shape == (12, 4)  # which post nothing
