from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.report.models.picture import pictures_of


def test_every_site_has_a_bar():
    X = np.random.default_rng(0).normal(size=(60, 4))
    model = fs.FedComBat().fit(X, sites=np.array(["east", "north", "west"])[np.arange(60) % 3])
    (picture,) = (one for one in pictures_of(model) if one.title == "How far each site was from all")
    assert picture.body.count("<rect") == 3
    assert "north" in picture.body
    assert "4 features" in picture.remark
