"""Private maps of real images: what posted positions reveal, and what noise leaves of the map."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

import fedspan as fs
from fedspan.audit import audit
from tests.real_data import mnist

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def images():
    images = mnist()
    some = np.random.default_rng(110).permutation(len(images.data))[:6000]
    return images.data[some] / np.float32(255), images.target[some].astype(int)


def test_posted_positions_are_blurred_images(images):
    X, public = images[0][:600], images[0][600:1500]
    fed = fs.federate(X, sites=np.arange(600) // 60)
    model = fs.FedTSNE(share="centers", post_positions=True, random_state=0).fit(fed)
    card = audit(model, truth=X, public=public, bounds=(0.0, 1.0))
    found = {entry.attack: entry for entry in card.entries}
    best = max(entry.measures["psnr"] for name, entry in found.items() if name.startswith("positions"))
    assert 13.5 < best <= 15.8
    assert found["positions: nearest centres"].baseline["psnr"] == pytest.approx(11.7, abs=0.2)
    assert 0.5 < found["centres: membership"].measures["auc"] < 0.7


def test_a_map_with_noise_separates_digits(images):
    X, y = images
    fed = fs.federate(X, sites=np.arange(len(X)) % 10, policy=fs.Policy(secure_sum=True))
    privacy = fs.privacy.GaussianCenters(8.0, 1e-5, clip=7.0, center=0.13)
    settings = {"rounds": 100, "exaggeration_rounds": 30}
    model = fs.FedTSNE(share="centers", privacy=privacy, sums_settings=settings, random_state=0).fit(fed)
    Z = model.transform(X)
    near = cKDTree(Z).query(Z, 11)[1][:, 1:]
    votes = [np.bincount(y[row], minlength=10).argmax() for row in near]
    assert np.mean(votes == y) > 0.72
