"""What a level of a site's owner admits follows from declarations, and these are true of all examples."""

from __future__ import annotations

import numpy as np

from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.transforms import installed_transforms

from .captured_calls import CHARGED, captured_calls

OWN = {id: step for id, step in install_steps().items() if step.function.__module__.startswith("fedspan.")}


def test_steps_that_charge_are_declared():
    captured_calls()
    assert {id for id, finite in CHARGED if finite and id in OWN} == {id for id, step in OWN.items() if step.noisy}


def names(values, site):
    """Return whether a request's text arrays hold the name of the site, so that it may answer in another way."""
    texts = [value for value in values.values() if isinstance(value, np.ndarray) and value.dtype.kind == "U"]
    return any(site.name in array.tolist() for array in texts)


def test_requests_that_name_single_sites_are_declared():
    """A secure sum of replies that depend on the site shows single sites: what an owner's level 'secure' is against."""
    found = set()
    for calls in captured_calls().values():
        for one in calls:
            payload = one.call.payload_of(one.site.name)
            if names(payload, one.site):
                found.add(one.call.step.id)
                assert one.call.step.tells_sites_apart(payload), f"{one.call.step.id}: declare by_site"
            for transform in one.call.transforms:
                if names(transform.parameters, one.site):
                    found.add(transform.id)
                    assert installed_transforms()[transform.id].by_site, f"{transform.id}: declare by_site"
    assert {"combat.site_sums", "atlases.begin"} <= found
