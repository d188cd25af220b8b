"""
A federated map beside the pooled one
=====================================

Ten sites have images of one digit each, the hardest split there is: no site has ever seen two digits, so no site
could draw a map by itself. ``FedTSNE`` draws the map of all images without moving one, beside the map that openTSNE
draws of the pooled images.

The images are MNIST's where the data folder has them (``FEDSPAN_DATA``), and scikit-learn's otherwise. **A map by
posted distances is not private against the coordinator**: the example "What the coordinator can rebuild" shows it.
Needs ``pip install "fedspan[maps]"``.
"""

from __future__ import annotations

import numpy as np
import openTSNE
from sklearn.neighbors import KNeighborsClassifier

import fedspan as fs
from fedspan.datasets import data_folder, load_digits, load_mnist

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


# %%
# Data: a thousand images, each at the site of its digit.


def images() -> tuple[str, np.ndarray, np.ndarray]:
    """Return a name, rows and digits."""
    if (data_folder() / "mnist.npz").is_file():
        name, table = "MNIST", load_mnist()
        rows = np.random.default_rng(0).permutation(len(table.data))[:1200]
        return name, table.data[rows] / 255.0, table.target[rows]
    name, table = "digits", load_digits()
    return name, table.data[:1200].astype(float), table.target[:1200]


# %%
# Both maps, and how they compare: the accuracy of ten neighbours on the map, each image judged by others.


def accuracy(Y: np.ndarray, digit: np.ndarray) -> float:
    """Return the leave-one-out accuracy of ten neighbours."""
    near = KNeighborsClassifier(11).fit(Y, digit).kneighbors(Y, return_distance=False)[:, 1:]
    return float(np.mean([np.bincount(digit[row]).argmax() for row in near] == digit))


def main() -> None:
    name, X, digit = images()
    model = fs.FedTSNE(n_landmarks=100, rounds=50, random_state=0).fit(X, sites=digit)
    pooled = np.asarray(openTSNE.TSNE(n_jobs=1, random_state=0).fit(X))
    maps = {"federated, ten one-digit sites": model.embedding_, "pooled": pooled}
    for title, Y in maps.items():
        print(f"{name}, {len(X)} images, {title}: accuracy of ten neighbours {accuracy(Y, digit):.3f}")
    print(model.run_.summary())
    if plt:
        draw(maps, digit, name)


def draw(maps: dict[str, np.ndarray], digit: np.ndarray, name: str) -> None:
    """Draw the maps side by side; colours are the digits, which no map has seen."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
    for axis, (title, Y) in zip(axes, maps.items(), strict=True):
        points = axis.scatter(*Y.T, c=digit, cmap="tab10", s=6, linewidths=0)
        axis.set(title=title, xticks=[], yticks=[])
    figure.legend(*points.legend_elements(), loc="outside lower center", ncols=10, frameon=False)
    figure.suptitle(f"t-SNE of {len(digit)} images ({name})")
    plt.show()


if __name__ == "__main__":
    main()
