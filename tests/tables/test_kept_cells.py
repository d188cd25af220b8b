"""The encoder learns on: means and scales of many batches are those of all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError


def traffic(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "proto": rng.choice(["tcp", "udp", "icmp"], n, p=[0.6, 0.3, 0.1]),
            "bytes": np.exp(3 * rng.normal(size=n)),
            "seconds": rng.normal(size=n) + 1e6,
            "service": rng.choice(["http", "-", "dns"], n),
        }
    )
    frame.loc[rng.random(n) < 0.2, "seconds"] = np.nan
    return frame


@pytest.mark.parametrize("options", [{}, {"missing": "mean"}, {"scale": False}, {"unknown": "zero"}, {"rare": 0.2}])
def test_many_batches_are_all_rows(options):
    frame, sites = traffic(1500), np.arange(1500) % 4
    whole = fs.FedTabularEncoder(**options).fit(frame, sites=sites)
    found = fs.FedTabularEncoder(**options)
    for part in np.array_split(np.arange(1500), 15):
        found.partial_fit(frame.iloc[part], sites=sites[part])
    np.testing.assert_allclose(found.mean_, whole.mean_, rtol=1e-10, atol=1e-12)
    if whole.scale_ is not None:
        np.testing.assert_allclose(found.scale_, whole.scale_, rtol=1e-10)
    assert found.n_samples_seen_ == 1500
    np.testing.assert_allclose(found.transform(traffic(50, 1)), whole.transform(traffic(50, 1)), rtol=1e-7, atol=1e-9)


def test_old_rows_fade_and_new_names_are_other():
    encoder = fs.FedTabularEncoder().partial_fit(traffic(400))
    new = traffic(400, seed=1)
    new["proto"] = "gre"
    encoder.partial_fit(new, decay=0.25)
    labels = encoder.get_feature_names_out().tolist()
    assert encoder.mean_[labels.index("proto_(other)")] == pytest.approx(0.8)
    assert encoder.n_samples_seen_ == 500


def test_a_fitted_encoder_learns_on_if_it_knows_its_gaps():
    frame = traffic(800)
    found = fs.FedTabularEncoder().fit(frame.iloc[:400]).partial_fit(frame.iloc[400:])
    np.testing.assert_allclose(found.mean_, fs.FedTabularEncoder().fit(frame).mean_, rtol=1e-10, atol=1e-12)
    with pytest.raises(InputError, match="begin with partial_fit"):
        fs.FedTabularEncoder(missing="mean").fit(frame).partial_fit(frame)
    with pytest.raises(InputError, match="no aggregator"):
        fs.FedTabularEncoder(aggregator=fs.aggregation.CoordinateMedian()).partial_fit(frame)


def test_secure_sums_learn_on():
    frame, policy = traffic(400), fs.Policy(secure_sum=True)
    names = {"proto": ["icmp", "tcp", "udp"], "service": ["dns", "http"]}
    encoder = fs.FedTabularEncoder(categorical=list(names), categories=names)
    for part in (frame.iloc[:200], frame.iloc[200:]):
        encoder.partial_fit(fs.federate(part.reset_index(drop=True), sites=np.arange(200) % 4, policy=policy))
    whole = fs.FedTabularEncoder(categorical=list(names), categories=names).fit(frame)
    np.testing.assert_allclose(encoder.mean_, whole.mean_, rtol=1e-5, atol=1e-6)
