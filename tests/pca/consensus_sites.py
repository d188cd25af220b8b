"""Sites that are unlike in size and in shape, and the truth about all their rows."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.pca.fedpg import fedpg

D, K = 8, 3


def unlike_sites(n_sites=9, seed=0):
    """Sites of 10, 17, 24, ... rows, each with its own variances along common axes; three of them stand out."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
    sites = []
    for i in range(n_sites):
        sizes = np.array([5.0, 4.0, 3.0] + [1.0] * (D - 3)) * rng.uniform(0.3, 2.0, size=D)
        sites.append(fs.Site(f"s{i:02d}", rng.normal(size=(10 + 7 * i, D)) * sizes @ axes.T))
    return sites


def leading_axes(sites, k=K):
    """Return the leading axes (d, k) of all rows together."""
    return np.linalg.svd(np.concatenate([site.X for site in sites]), full_matrices=False)[2][:k].T


def loss(sites, U):
    """Return the mean squared distance of all rows from the span of U."""
    X = np.concatenate([site.X for site in sites])
    Q = np.linalg.qr(U)[0]
    return float(np.sum((X - X @ Q @ Q.T) ** 2) / len(X))


SITES = unlike_sites()
TRUTH = leading_axes(SITES)


def federation(sites=SITES, **options):
    return fs.LocalFederation(sites, **{"seed": 1, **options})


def run(fed, protocol=fedpg, **settings):
    """Run a protocol and return its result, the weights and the record."""
    with fed.begin("test") as going:
        U, weights = protocol(going, rank=K, n_columns=D, **settings)
    return U, weights, going.record


def absent(fed, sites, when):
    """Return the federation in which `sites` do not answer the calls for which `when(number)` is true."""

    def attack(replies, bad, rng, call):
        return dict.fromkeys(bad, None) if when(call.number) else {}

    return fed.corrupt(attack, sites=sites)
