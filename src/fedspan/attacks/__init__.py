"""Byzantine attacks: what bad sites send instead of their honest replies.

An attack is any callable ``attack(replies, bad, rng, call) -> {site: reply}``. It is given *all* honest replies by
site, also what the bad sites would honestly have sent, the names of the bad sites that were asked, a generator, and
the call (``call.step``, ``call.number``). So it knows everything and its sites collude. Hand it to a federation::

    fed.corrupt(Orthogonal(3), sites=["b", "e"])          # the same bad sites in every call
    fed.corrupt(Redrawn(SignFlip(), 2), sites=fed.sites)  # two others each time

All of these take ``steps=`` and ``keys=``: the steps to attack (dotted names, or ends of them) and the keys of
the reply to rewrite. By default they rewrite every floating-point array and number of every reply, in
the type that it has, and keep counts and words honest.
"""

from __future__ import annotations

from fedspan.attacks.a_little_is_enough import ALittleIsEnough
from fedspan.attacks.alternating import Alternating
from fedspan.attacks.inner_product import InnerProduct
from fedspan.attacks.mimic import Mimic
from fedspan.attacks.non_finite import NonFinite
from fedspan.attacks.ones import Ones
from fedspan.attacks.orthogonal import Orthogonal
from fedspan.attacks.random_noise import RandomNoise
from fedspan.attacks.redrawn import Redrawn
from fedspan.attacks.scaled_reverse import ScaledReverse
from fedspan.attacks.sign_flip import SignFlip
from fedspan.attacks.wrong_shape import WrongShape

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
