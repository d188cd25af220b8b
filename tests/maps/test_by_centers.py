"""The map by centres, with noise: the map, what leaves the sites, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.privacy import GaussianCenters, GaussianData
from tests.maps.blob_maps import accuracy, blobs

QUICK = {"rounds": 40, "exaggeration_rounds": 15, "grid": 32, "k_means_rounds": 3}


PRIVACY = GaussianCenters(30.0, 1e-5, clip=10.0, center=2.0)


SECURE = fs.Policy(secure_sum=True)


X = np.random.default_rng(0).normal(size=(900, 5)) + 8 * np.eye(3, 5)[np.arange(900) % 3]


Y = np.arange(900) % 3


SITES = np.arange(900) // 3 % 5


def make(**more):
    settings = {**QUICK, **more.pop("sums_settings", {})}
    return fs.FedTSNE(**{"share": "centers", "privacy": PRIVACY, "sums_settings": settings, "random_state": 0, **more})


@pytest.fixture(scope="module")
def model():
    return make().fit(fs.federate(X, sites=SITES, policy=SECURE))


def test_the_map_separates_groups(model):
    assert accuracy(model.transform(X), Y) > 0.97
    assert not hasattr(model, "embedding_")
    assert model.density_.sum() == pytest.approx(900, abs=30)
    other = make(random_state=1).fit(fs.federate(X, sites=SITES, policy=SECURE))
    assert {model.density_.sum(), other.density_.sum()} != {900.0}  # The number of rows has noise, too.


def test_only_sums_with_noise_and_public_facts_leave(model):
    steps = [call.step for call in model.run_.calls]
    assert set(steps) == {"sums.columns", "privacy.ledger", "maps.noisy_scatter", "maps.noisy_cells"}
    assert steps.count("maps.noisy_cells") == 3


def test_the_guarantee_in_words(model):
    text = model.privacy_.sentence()
    assert text.startswith("epsilon 30")
    assert "at delta 1e-05 for one row of one site added or removed, simulated; covers the sums" in text
    assert "does not cover positions of rows on the map, if they are posted later, nor the numbers" in text
    posted = make(post_positions=True).fit(fs.federate(X, sites=SITES))
    assert "; does not cover the posted positions of the rows on the map, nor the numbers" in posted.privacy_.sentence()
    assert posted.embedding_.shape == (900, 2)


def test_a_table_is_mapped_with_the_noise_of_all_sites():
    model = make(random_state=1).fit(X, sites=SITES)
    assert accuracy(model.embedding_, Y) > 0.97


def test_rows_outside_of_the_ball_and_values_that_are_not_finite_do_no_harm():
    odd = X.copy()
    odd[0], odd[1, 2], odd[2] = 1e30, np.nan, np.inf
    model = make().fit(fs.federate(odd, sites=SITES, policy=SECURE))
    assert accuracy(model.transform(X), Y) > 0.97


def test_it_is_saved_and_loaded_with_its_mechanism(model, tmp_path):
    model.save(tmp_path / "map.fedspan")
    again = fs.load(tmp_path / "map.fedspan")
    assert again.privacy == PRIVACY
    assert again.privacy_.unit == model.privacy_.unit
    np.testing.assert_array_equal(again.transform(X[:20]), model.transform(X[:20]))
    assert clone(model).privacy == PRIVACY


def test_the_same_seed_gives_the_same_map(model):
    again = make().fit(fs.federate(X, sites=SITES, policy=SECURE))
    np.testing.assert_array_equal(again.center_positions_, model.center_positions_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": "sums"}, "does not go with share='sums': GaussianCenters goes with share='centers'"),
        (
            {"privacy": GaussianData(8.0, 1e-5, 3.0)},
            "does not go with share='centers': .* other noise with share='distances'",
        ),
        ({"privacy": GaussianCenters(-1.0, 1e-5, 3.0)}, "epsilon=-1.0 must"),
        ({"sums_settings": {"codebooks": 2}}, "sums_settings has 'codebooks', and may have .*centres, axes"),
        ({"sums_settings": {"centres": 0}}, "centres=0 must"),
        ({"sums_settings": {"axes": 1}}, "axes=1 must"),
        ({"device": "cuda"}, "device='cuda' has no effect with share='centers'"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        make(**settings).fit(fs.federate(X, sites=SITES))


def test_other_models_refuse_this_noise():
    with pytest.raises(InputError, match=r"goes with FedTSNE\(share='centers'\) alone"):
        fs.FedLandmarks(5, privacy=PRIVACY).fit(X)


def test_posted_positions_need_single_replies():
    with pytest.raises(PolicyError, match="post_positions=True"):
        make(post_positions=True).fit(fs.federate(X, sites=SITES, policy=SECURE))


def test_the_map_of_centres_alone_is_the_same_for_any_split():
    X, _ = blobs(120)
    settings = {"rounds": 60, "exaggeration_rounds": 20, "grid": 32, "codebooks": 3, "rows_per_centre": 10.0}
    model = fs.FedTSNE(share="centers", sums_settings=settings, random_state=0)
    one, many = clone(model).fit(X), model.fit(X, sites=np.arange(120) % 7)
    np.testing.assert_allclose(many.embedding_, one.embedding_, atol=1e-4)
