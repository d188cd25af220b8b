"""A random visit of a site: its rows, and U, Z, Y and T near each other."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.federation.site.call_context import CallContext
from fedspan.linalg import q_factor
from fedspan.pca import fedpg
from fedspan.pca.parts.second_moment import second_moment


class Setting:
    """A random site, and random U, Z, Y, T near each other."""

    def __init__(self, seed, d=7, k=3, near=0.3):
        rng = np.random.default_rng(seed)
        self.rng, self.shape = rng, (d, k)
        self.X = rng.normal(size=(20, d)) * rng.uniform(0.2, 3.0, size=d)
        self.C = second_moment(fs.Site("s", self.X), 20.0, (d, k), 1000)
        self.U = q_factor(rng.normal(size=(d, k)))
        self.Z = self.U + near * rng.normal(size=(d, k))
        self.Y = rng.normal(size=(d, k))
        T = rng.uniform(size=(k, k))
        self.T = T + T.T
        self.rho = float(rng.uniform(0.5, 5.0))

    def f(self, U):
        """Equation (3), from the rows."""
        return float(np.sum((self.X - self.X @ U @ U.T) ** 2) / 20.0)

    def F(self, U):
        """Equation (14)."""
        return self.f(U) + np.sum(self.Y * (U - self.Z)) + self.rho / 2 * np.sum((U - self.Z) ** 2)

    def pull(self, eta):
        return np.asfortranarray(eta * (self.rho * self.Z - self.Y))

    def pg_direction(self, variant, U=None):
        """Return minus the projected gradient that FedPG steps along."""
        U = self.U if U is None else U
        return fedpg.MOVES[variant](U, self.C.add_product(self.pull(1.0), 2.0, U)) - U

    def pg_step(self, variant, eta):
        return fedpg.local_step(self.C, self.U, self.pull(eta), eta, fedpg.MOVES[variant])


def slope(function, at, along, h=1e-5):
    """Return the derivative of a function along a curve ``at(t)``, by central differences."""
    return (function(at(h * along)) - function(at(-h * along))) / (2 * h)


def visited_site(X, kept):
    """Return a site within a call, with the state that earlier visits left."""
    return fs.Site("s", X).in_call(CallContext(kept, "run", 0, 0, "pca.fedpg_update", {}))
