"""Byzantine attacks: what malicious sites send instead of their honest replies.

An attack is any callable ``attack(replies, bad, rng, call) -> {site: reply}``. It sees *all* honest replies by site,
also those of the malicious sites. It also gets the names of the malicious sites in this call, a generator, and the call
(``call.step``, ``call.number``). So it knows everything and its sites collude. Pass it to a federation::

    fed.corrupt(Orthogonal(3), sites=["b", "e"])          # the same malicious sites in every call
    fed.corrupt(Redrawn(SignFlip(), 2), sites=fed.sites)  # two others each time

All of these take ``steps=`` and ``keys=``. Steps to attack are named by ids, names of functions, or ends of them after
a dot; keys are those of the reply to rewrite. By default they rewrite every floating-point array and number of every
reply, in its own type, and keep counts and text honest.

>>> import numpy as np
>>> from fedspan.federation import AttackedCall
>>> replies = {"a": {"x": np.array([1.0, 2.0]), "n": 5}, "b": {"x": np.array([3.0, 4.0]), "n": 6}}
>>> SignFlip()(replies, ("b",), np.random.default_rng(0), AttackedCall("gradient", 0))
{'b': {'x': array([-3., -4.]), 'n': 6}}
"""

from __future__ import annotations

from fedspan.attacks.altered_values import ALittleIsEnough, InnerProduct, Mimic, ScaledReverse, SignFlip, WrongShape
from fedspan.attacks.fixed_values import Alternating, NonFinite, Ones, RandomNoise
from fedspan.attacks.orthogonal import Orthogonal
from fedspan.attacks.redrawn import Redrawn

__all__ = [
    "ALittleIsEnough",
    "Alternating",
    "InnerProduct",
    "Mimic",
    "NonFinite",
    "Ones",
    "Orthogonal",
    "RandomNoise",
    "Redrawn",
    "ScaledReverse",
    "SignFlip",
    "WrongShape",
]
