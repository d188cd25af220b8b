"""
A protocol of your own
======================

Federated linear regression by gradient descent, both sides of it in one file. ``docs/protocols.md`` says what else a
protocol can do.

Run it twice: the second time it finds its journal and returns at once. Kill it in between: it continues.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

import fedspan as fs

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


@fs.step
def local_gradient(site, w):
    """Leaves the site: the gradient of its squared error, that error, and its number of rows."""
    residual = site.X @ w - site.y
    site.state["visits"] = site.state.get("visits", 0) + 1
    return {"gradient": site.X.T @ residual, "loss": float(residual @ residual), "n": len(site)}


def linear_regression(fed, *, n_features, rounds, step=0.5, tol=1e-10):
    """Minimise the mean squared error over all rows of all sites."""
    w = np.zeros(n_features)
    for _ in fed.rounds(rounds):
        total = fed.sum(local_gradient, w=w)
        gradient = total["gradient"] / total["n"]
        fed.log(loss=total["loss"] / total["n"])
        w = w - step * gradient
        if np.linalg.norm(gradient) <= tol:
            fed.stop(f"converged: the gradient's norm is at most {tol:g}")
    return w


def main(folder: str) -> None:
    rng = np.random.default_rng(0)
    truth = np.array([1.0, -2.0, 0.5])
    X = rng.normal(size=(600, 3))
    y = X @ truth + 0.01 * rng.normal(size=600)
    fed = fs.federate(X, y, sites=np.arange(600) % 6, run_dir=folder)
    with fed.begin("example") as run:
        w = linear_regression(run, n_features=3, rounds=200)
    print("weights:", np.round(w, 3))
    print(run.record.summary())
    assert np.allclose(w, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-8)
    if plt:
        _, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
        axis.semilogy(run.record.metric("loss"))
        axis.set(xlabel="round", ylabel="mean squared error", title=run.record.stopped)
        plt.show()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
