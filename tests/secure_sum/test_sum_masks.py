"""Keys and masks."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from fedspan.errors import FedspanError, MissingPackageError
from fedspan.secure_sum.sum_masks import KeyPair, derived, mask, primitives, seal, unseal


def test_both_sides_agree_and_others_do_not():
    a, b, c = KeyPair(), KeyPair(), KeyPair()
    assert a.agreed(b.public) == b.agreed(a.public) != c.agreed(a.public)
    assert KeyPair(a.secret).public == a.public
    with pytest.raises(FedspanError, match="not one to agree with"):
        a.agreed(bytes(32))


def test_masks_of_both_signs_cancel():
    rng = np.random.default_rng(0)
    for width in (1, 2, 3):
        parts = [rng.integers(0, 2**64, size=(width, m), dtype=np.uint64) for m in (0, 5, 20_000)]
        before = [part.copy() for part in parts]
        seeds = [bytes([k]) * 32 for k in range(4)]
        mask(parts, seeds[:3], seeds[3:])
        assert all((part != old).mean() > 0.99 for part, old in zip(parts[1:], before[1:], strict=True))
        mask(parts, seeds[3:], seeds[:3])
        for part, old in zip(parts, before, strict=True):
            np.testing.assert_array_equal(part, old)


def test_no_word_of_a_mask_is_used_twice():
    parts = [np.zeros((1, 9000), dtype=np.uint64), np.zeros((3, 9000), dtype=np.uint64)]
    mask(parts, [bytes(32)])
    words = np.concatenate([part.ravel() for part in parts])
    assert len(np.unique(words)) == len(words)


def test_seals():
    key = derived(b"k" * 32, b"salt", "shares")
    sealed = seal(key, b"message", b"a to b")
    assert unseal(key, sealed, b"a to b") == b"message"
    for wrong in ((key, sealed, b"a to c"), (key[::-1], sealed, b"a to b"), (key, sealed[:-1] + b"?", b"a to b")):
        with pytest.raises(FedspanError, match="not what its sender sealed"):
            unseal(*wrong)
    assert len({key, derived(b"k" * 32, b"salt", "masks"), derived(b"k" * 32, b"other", "shares")}) == 3


def test_without_the_package_there_is_a_sentence(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    primitives()
    monkeypatch.setattr(builtins, "__import__", without)
    primitives.cache_clear()
    with pytest.raises(MissingPackageError, match=r'pip install "\.\[secure\]"'):
        primitives()
