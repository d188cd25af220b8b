"""
What the coordinator can rebuild
================================

Maps and clusters by landmarks need distances of every row to every landmark. No row leaves its site, and yet who
knows the landmarks and a row's distances to them can compute the row. ``audit`` does what a curious coordinator could
do with what it received, and the pictures show it: with more landmarks than pixels every image is rebuilt to the last
digit, with few of them a blur is left.
"""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.audit import audit
from fedspan.datasets import load_digits

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None

LANDMARKS = (5, 10, 20, 40, 100)


# %%
# One fit for each number of landmarks, and the attack on what its coordinator holds.


def main() -> None:
    digits = load_digits()
    X, digit = digits.data[:500].astype(float), digits.target[:500]
    shown = np.array([np.flatnonzero(digit == d)[0] for d in range(10)])
    rebuilt = {}
    print(
        "landmarks   relative error   re-identified   clusters (share of rows whose cluster is mostly of their digit)"
    )
    for count in LANDMARKS:
        model = fs.FedSpectralClustering(10, n_landmarks=count, rounds=50, random_state=0).fit(X, sites=digit)
        found = audit(model, truth=X, image_shape=(8, 8)).entries[0]
        rebuilt[count] = found.rebuilt[shown]
        pure = sum(np.bincount(digit[model.labels_ == k]).max(initial=0) for k in range(10)) / len(X)
        print(f"{count:9d}{found.measures['relative_error']:17.1e}{found.measures['reidentified']:16.1%}{pure:11.2f}")
    if plt:
        draw(X[shown], rebuilt)


# %%
# The first row are images that never left their sites; the others are what the coordinator can make of the numbers it
# was sent.


def draw(true: np.ndarray, rebuilt: dict[int, np.ndarray]) -> None:
    """Draw true images above rebuilt ones."""
    rows = {"at the sites": true} | {f"{count} landmarks": r for count, r in rebuilt.items()}
    figure, axes = plt.subplots(len(rows), 10, figsize=(9, 5.5), layout="constrained")
    for line, (title, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(title, rotation=0, ha="right", va="center")
    figure.suptitle("What the coordinator can rebuild of ten images")
    plt.show()


if __name__ == "__main__":
    main()
