"""Attacks on the replies of mixed regression."""

from __future__ import annotations


def only(key, value, step=""):
    """Return the attack that sends one value for one key."""

    def attack(replies, bad, rng, call):
        there = {site: dict(replies[site]) for site in bad if site in replies and key in replies[site]}
        return {site: {**reply, key: value} for site, reply in there.items()} if step in call.step else {}

    return attack
