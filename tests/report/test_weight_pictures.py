"""The picture of the weights of sites."""

from __future__ import annotations

import numpy as np

from fedspan.report.models.weight_pictures import site_weights

from .report_reading import Fitted, Page


def test_weights_of_sites_are_drawn_where_they_differ():
    model = Fitted(site_weights_=np.array([0.5, 0.5, 0.0]), sites_=("a", "b", "c"), sites_trusted_=("a", "b"))
    picture = site_weights(model)
    assert next(w for w in Page(picture.body).words if w in "abc") == "c"
    assert picture.remark == "2 of 3 have at least half an equal share. Doubted: c."
    model.site_weights_ = np.full(3, 1 / 3)
    assert site_weights(model) is None
