"""How large a reply will be is found out once for all questions of one form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from fedspan.federation.site.reply_size import ChargedIfItFits, ReplySizes

from fedspan.errors import PolicyError
from fedspan.federation.site import reply_size
from fedspan.secure_sum.sum_masked_share import Uncharged


@pytest.fixture
def measured(monkeypatch):
    found = []
    monkeypatch.setattr(reply_size, "_size", lambda site, call, kept, vault: found.append(call) or 100)
    return found


def check(sizes, largest=100, step="s", transforms=(), **payload):
    call = SimpleNamespace(step=SimpleNamespace(name=step), transforms=transforms, payload=payload)
    sizes.check(None, call, None, None, largest)


def test_values_of_real_numbers_do_not_matter_and_all_else_does(measured):
    sizes = ReplySizes()
    transform = SimpleNamespace(name="doubled")
    forms = [
        {},
        {"step": "t"},
        {"transforms": (transform,)},
        {"x": 1.0},
        {"x": 3},
        {"x": 4},
        {"x": "a"},
        {"x": np.zeros(3)},
        {"x": np.zeros(4)},
        {"x": np.zeros((3, 1))},
        {"x": np.zeros(3, dtype=np.float32)},
        {"x": np.zeros(3, dtype=int)},
        {"x": np.ones(3, dtype=int)},
        {"x": np.zeros(300, dtype=int)},
    ]
    for number, form in enumerate(forms, 1):
        check(sizes, **form)
        assert len(measured) == number, form
    for same in (*forms, {"x": 2.0}, {"x": np.ones(3)}, {"x": np.ones(300, dtype=int)}):  # many: no widths or counts
        check(sizes, **same)
    assert len(measured) == len(forms)


def test_a_reply_that_is_just_small_enough_passes(measured):
    sizes = ReplySizes()
    check(sizes, largest=100)
    with pytest.raises(PolicyError, match="more than the 99 bytes allowed, and the privacy budget is not charged"):
        check(sizes, largest=99)


def test_what_cannot_be_measured_passes(monkeypatch):
    monkeypatch.setattr(reply_size, "_size", lambda *_: None)
    check(ReplySizes(), largest=1)


def test_the_first_forms_are_forgotten_where_there_are_many(measured, monkeypatch):
    monkeypatch.setattr(reply_size, "_MOST_KNOWN", 3)
    sizes = ReplySizes()
    for x in (1, 2, 3, 2, 3, 4):  # 4 takes the place of 1
        check(sizes, x=x)
    assert len(measured) == 4
    for x in (2, 3, 4):
        check(sizes, x=x)
    assert len(measured) == 4
    check(sizes, x=1)
    assert len(measured) == 5


def test_nothing_is_charged_where_the_reply_is_too_large():
    charged = []
    ledger = SimpleNamespace(
        simulated=False,
        strict=True,
        lasts=lambda **cost: cost == {"mu2": 1.0, "rho": 2.0},
        fingerprint_key=lambda: b"secret",
        key=lambda question, **cost: charged.append((question, cost)) or b"key",
    )

    def refuse():
        raise PolicyError("too large")

    fits, too_large = ChargedIfItFits(ledger, lambda: None), ChargedIfItFits(ledger, refuse)
    assert (fits.simulated, fits.strict, fits.fingerprint_key()) == (False, True, b"secret")
    assert fits.lasts(mu2=1.0, rho=2.0)
    assert not fits.lasts()
    with pytest.raises(PolicyError, match="too large"):
        too_large.key("q", mu2=1.0)
    assert not charged
    assert fits.key("q", mu2=1.0) == b"key"
    assert charged == [("q", {"mu2": 1.0, "rho": 0.0})]


def test_invented_rows_are_never_charged():
    free = Uncharged()
    assert (free.simulated, free.strict, free.lasts(mu2=1e9, rho=1e9)) == (True, False, True)
    keys = [free.key("q", mu2=1.0), free.key("q", mu2=1.0), free.fingerprint_key(), free.fingerprint_key()]
    assert {len(key) for key in keys} == {32}
    assert len(set(keys)) == 4
