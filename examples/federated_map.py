"""
A federated map beside the pooled one
=====================================

Ten sites have images of one digit each, the hardest split there is: no site has ever seen two digits, so no site
could draw a map by itself. ``FedUMAP`` with its defaults draws the map of all images without moving one, beside the map
that umap-learn draws of the pooled images with the same seed.

The images are MNIST's where the data folder has them (``FEDSPAN_DATA``), and scikit-learn's otherwise. **A map by
posted distances is not private against the coordinator**: the example "What the coordinator can rebuild" shows it.
Needs ``pip install ".[maps]"``. With ``--out FILE`` the picture is written there: that of the README is
``python examples/federated_map.py --out docs/_static/federated-map.png``.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import umap
from sklearn.neighbors import NearestNeighbors

import fedspan as fs
from fedspan.datasets import Bunch, data_folder, load_digits, load_mnist

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


# %%
# Data: 2,500 images, each at the site of its digit.


def images() -> Bunch:
    """Return a name, rows (n, d) and digits (n,)."""
    if (data_folder() / "mnist.npz").is_file():
        table = load_mnist()
        rows = np.random.default_rng(0).permutation(len(table.data))[:2500]
        return Bunch(name="MNIST", X=table.data[rows] / 255.0, digit=table.target[rows])
    table = load_digits()
    return Bunch(name="scikit-learn's digits", X=table.data.astype(float), digit=table.target)


# %%
# Both maps, and how they compare: the accuracy of ten neighbours on the map, each image judged by others (CA10).


def accuracy(Y: np.ndarray, digit: np.ndarray) -> float:
    """Return the share of rows whose digit is the most frequent one among their ten neighbours."""
    near = NearestNeighbors(n_neighbors=10).fit(Y).kneighbors(return_distance=False)
    return float(np.mean([np.bincount(digit[row]).argmax() for row in near] == digit))


def main(out: str | None = None) -> None:
    data = images()
    order = np.argsort(data.digit, kind="stable")  # as the federation has the rows: site after site
    X, digit = data.X[order], data.digit[order]
    model = fs.FedUMAP(random_state=0).fit(X, sites=digit)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_jobs")  # a seed means one thread, which umap-learn tells
        pooled = umap.UMAP(random_state=0).fit_transform(X)
    maps = {"federated: ten sites, one digit each": model.embedding_, "pooled: umap-learn": pooled}
    scores = {title: accuracy(Y, digit) for title, Y in maps.items()}
    for title, score in scores.items():
        print(f"{data.name}, {len(X)} images, {title}: accuracy of ten neighbours {score:.3f}")
    print(model.run_.summary())
    if plt:
        draw(maps, scores, digit, f"UMAP of {len(X):,} images ({data.name}, seed 0); colours: digits, which no map saw")
        if out:
            plt.savefig(out, dpi=110, facecolor="white", pil_kwargs={"optimize": True})
        plt.show()


def draw(maps: dict[str, np.ndarray], scores: dict[str, float], digit: np.ndarray, title: str) -> None:
    """Draw the maps side by side, with what they are worth under each."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
    for axis, (name, Y) in zip(axes, maps.items(), strict=True):
        points = axis.scatter(*Y.T, c=digit, cmap="tab10", s=4, linewidths=0)
        axis.set(title=name, xticks=[], yticks=[], xlabel=f"accuracy of ten neighbours {scores[name]:.3f}")
    figure.legend(*points.legend_elements(), loc="outside lower center", ncols=10, frameon=False, handletextpad=0)
    figure.suptitle(title, fontsize=11)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw a federated map beside the pooled one.")
    parser.add_argument("--out", help="where the picture is written, such as map.png")
    main(parser.parse_args().out)
