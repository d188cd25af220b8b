"""What a step with noise sends without it, and tables that differ by one row: for tests of sensitivities."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import fedspan as fs

D = 4


def exact_reply(X, step, monkeypatch, **payload):
    """Return what a site sends without noise, as one vector."""
    monkeypatch.setattr("fedspan.privacy.noisy_sums.with_noise", lambda exact, **_: exact)
    fed = fs.LocalFederation([fs.Site("a", X)])
    reply = fed.ask(step, multiplier=1.0, sharers=1, colluding=0, **payload)["a"]
    return np.concatenate([np.ravel(reply[key]) for key in sorted(reply)])


@st.composite
def neighbours(draw):
    """Return a table, the same with one more row at any place, and bounds of any kind."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    far = draw(st.sampled_from([0.0, 0.3, 1.0, 7.0, 1e9, 1e200, np.nan, np.inf]))
    X = rng.normal(size=(draw(st.sampled_from([0, 1, 6])), D)) * 10.0 ** rng.integers(-2, 3)
    row = (
        np.full(D, far) if not np.isfinite(far) else far * rng.choice([rng.normal(size=D), np.sign(rng.normal(size=D))])
    )
    more = np.insert(X, rng.integers(0, len(X) + 1), row, axis=0)
    bounds = {"center": rng.normal(size=D), "width": 10.0 ** rng.integers(-1, 2, size=D), "box": draw(st.booleans())}
    return X, more, bounds


def moved(tables, step, monkeypatch, **payload):
    """Return how far one row moves a reply."""
    before, after = (exact_reply(X, step, monkeypatch, **payload) for X in tables)
    return float(np.linalg.norm(after - before))
