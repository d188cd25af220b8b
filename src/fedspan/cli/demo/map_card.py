"""Card: ten hospitals draw one map, beside that of the pooled rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors

from fedspan.arrays import Array
from fedspan.datasets import load_digits, split_dirichlet
from fedspan.maps.tsne import FedTSNE
from fedspan.report import write_report
from fedspan.report.cards_page import Card
from fedspan.report.charts.svg import path, pixels, specks, svg, text
from fedspan.report.markup import Html, count
from fedspan.report.models.map_pictures import map_of

ROWS, SITES = 1200, 10
SETTINGS = {"rounds": 100, "exaggeration_rounds": 40, "codebooks": 4}
LINES = """
import fedspan as fs
from fedspan.datasets import load_digits, split_dirichlet

digits = load_digits()
X, digit = digits.data[:1200].astype(float), digits.target[:1200]
hospital = split_dirichlet(digit, 10, alpha=0.5, seed=0)
quick = {"rounds": 100, "exaggeration_rounds": 40, "codebooks": 4}
model = fs.FedTSNE(share="sums", sums_settings=quick, random_state=0)
model.fit(X, sites=hospital)
print(model.embedding_.shape, model.run_.summary())
"""
_GAP, _SIDE, _HEAD = 12, 174, 20


def map_card(folder: Path, seed: int) -> Card:
    """Draw both maps, and write the report of the federated one."""
    digits = load_digits()
    X, digit = digits.data[:ROWS].astype(float), digits.target[:ROWS]
    sites = split_dirichlet(digit, SITES, alpha=0.5, seed=seed)
    model = FedTSNE(share="sums", sums_settings=SETTINGS, random_state=seed).fit(X, sites=sites)
    pooled = TSNE(init="pca", max_iter=400, random_state=seed).fit_transform(X).astype(float)
    settings = {"data": f"{ROWS} of scikit-learn's digits", "split": "unequal mixes (Dirichlet 0.5)", "seed": str(seed)}
    scatter = map_of(model, digits.target_names[digit])
    title = "Ten hospitals, one map"
    write_report(
        folder / "report.html", title=title, records=model.run_, models=[model], scatter=scatter, settings=settings
    )
    found, wanted = same_digit(model.embedding_, digit), same_digit(pooled, digit)
    picture = two_maps(turned(model.embedding_, pooled), pooled, digit)
    return Card(
        "map",
        "Maps",
        f"Ten hospitals draw one map of their {count(ROWS)} images. Only sums leave a hospital.",
        picture,
        f"{found:.0%}",
        f"of the images lie among images of their digit; {wanted:.0%} on the map of the pooled images",
        "map/report.html",
        LINES,
    )


def same_digit(Y: Array, digit: Array) -> float:
    """Return the share of rows whose digit is the most frequent one among their neighbours on a map."""
    near = NearestNeighbors(n_neighbors=10).fit(Y).kneighbors(return_distance=False)
    return float(np.mean([np.bincount(digit[row]).argmax() for row in near] == digit))


def turned(Y: Array, like: Array) -> Array:
    """Return a map, turned and mirrored to lie on another one as well as it can."""
    Y = Y - Y.mean(axis=0)
    left, _, right = np.linalg.svd(Y.T @ (like - like.mean(axis=0)))
    return np.asarray(Y @ (left @ right))


def two_maps(left: Array, right: Array, digit: Array) -> Html:
    """Draw two maps side by side, in the colours of the digits."""
    body = []
    for x, name, Y in ((0, "ten hospitals", left), (_SIDE + _GAP, "pooled", right)):
        body += [text(x + _SIDE / 2, 13, name, "mid strong"), path(box(x, _HEAD, _SIDE, _SIDE), "ground")]
        low, high = np.percentile(Y, [0.2, 99.8], axis=0)
        Z = np.clip((Y - (low + high) / 2) / (high - low).max(), -0.5, 0.5) * (_SIDE - 14)
        places = np.rint(2 * (Z * [1, -1] + [x + _SIDE / 2, _HEAD + _SIDE / 2])) / 2
        for kind in range(10):
            body.append(path(specks(map(tuple, places[digit == kind])), f"dots s{kind}"))
    return svg(body, "two maps of digits: that of ten hospitals, and the pooled one", height=_HEAD + _SIDE)


def box(x: float, y: float, width: float, height: float) -> str:
    """Return the path of a rectangle."""
    return f"M{pixels(x)} {pixels(y)}h{pixels(width)}v{pixels(height)}h{pixels(-width)}z"
