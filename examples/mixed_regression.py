"""
Clusters of clinics
===================

Clinics whose patients answer to a drug in one of three unknown ways, most of them with a handful of patients.

Run it: it prints what was found, and what a new clinic with three patients learns.
"""

from __future__ import annotations

import numpy as np

import fedspan as fs

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None

ANSWERS = np.array([[2.0, 0.0, 0.5, 0.0], [0.0, -1.5, 0.5, 1.0], [-1.0, 1.0, 0.5, 0.0]])  # hidden, one for each cluster


def clinics(rng: np.random.Generator) -> tuple[list[fs.Site], np.ndarray]:
    """Return 150 clinics of 4 patients, 30 of 25, and the hidden cluster of each."""
    sizes = np.repeat([4, 25], [150, 30])
    labels = rng.integers(3, size=len(sizes))
    sites = []
    for i, (n, label) in enumerate(zip(sizes, labels, strict=True)):
        X = rng.normal(size=(n, 4)) * [1.0, 5.0, 0.2, 1.0] + [0.0, 40.0, 1.0, 0.0]  # age and doses: not isotropic
        y = 10.0 + (X - [0.0, 40.0, 1.0, 0.0]) / [1.0, 5.0, 0.2, 1.0] @ ANSWERS[label] + 0.3 * rng.normal(size=n)
        sites.append(fs.Site(f"clinic-{i:03d}", X, y))
    return sites, labels


def main() -> None:
    rng = np.random.default_rng(0)
    sites, labels = clinics(rng)
    fed = fs.LocalFederation(sites, seed=0)

    model = fs.FedMixedRegressor("auto", start="spectral").fit(fed)
    right = fs.linalg.matched_share(model.labels_, labels)
    print(
        f"{model.n_clusters_} clusters, shares {np.round(model.cluster_weights_, 2)}, noise {np.round(model.noise_, 2)}"
    )
    print(f"{right:.1%} of the clinics in the right cluster; {model.run_.summary()}")

    one = fs.FedMixedRegressor(1, update="exact").fit(fed)
    X, y = np.concatenate([s.X for s in sites]), np.concatenate([s.y for s in sites])
    names = np.repeat(fed.sites, [len(s) for s in sites])
    error = np.sqrt(np.mean((y - one.predict(X)) ** 2)), np.sqrt(np.mean((y - model.predict(X, site=names)) ** 2))
    print(f"error of a prediction: {error[0]:.2f} with one model for all, {error[1]:.2f} with those of the clusters")

    X_new = rng.normal(size=(3, 4)) * [1.0, 5.0, 0.2, 1.0] + [0.0, 40.0, 1.0, 0.0]
    y_new = 10.0 + (X_new - [0.0, 40.0, 1.0, 0.0]) / [1.0, 5.0, 0.2, 1.0] @ ANSWERS[1] + 0.3 * rng.normal(size=3)
    found = model.assign(X_new, y_new)
    print(f"a new clinic with three patients: cluster {found.label}, {found.confidence:.1%} sure")
    print(
        "predictions for it:", np.round(model.predict(X_new, cluster=found.proba), 1), "measured:", np.round(y_new, 1)
    )

    false = fed.corrupt(fs.attacks.ScaledReverse(10.0), sites=fed.sites[:18])  # every tenth sends false values
    honest = fs.FedMixedRegressor(3, start="spectral", aggregator=fs.aggregation.SpectralFilter(), tol=1e-3).fit(false)
    gap = fs.linalg.bottleneck_distance(honest.coef_ * [1.0, 5.0, 0.2, 1.0], ANSWERS)
    print(f"with a tenth of the clinics malicious: largest error of a model {gap:.2f}, of a length of about 2")
    assert right > 0.95
    assert model.n_clusters_ == 3
    assert gap < 0.3
    if plt:
        draw(model, [len(site) for site in sites])


def draw(model: fs.FedMixedRegressor, sizes: list[int]) -> None:
    """Draw the models that were found beside the hidden ones, and how sure each clinic's cluster is."""
    _, (models, clinics) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    found = model.coef_ * [1.0, 5.0, 0.2, 1.0]
    for k, answer in enumerate(ANSWERS):
        nearest = found[np.argmin(np.linalg.norm(found - answer, axis=1))]
        models.plot(answer, color=f"C{k}", label=f"hidden model {k + 1}")
        models.plot(nearest, "x", color=f"C{k}", markersize=10)
    models.set(xticks=range(4), xlabel="feature", ylabel="answer to it", title="models (crosses: as found)")
    models.legend(frameon=False)
    order = np.argsort(model.labels_, kind="stable")
    sure = model.proba_.max(axis=1)
    clinics.scatter(
        np.arange(len(order)), sure[order], c=[f"C{k}" for k in model.labels_[order]], s=np.array(sizes)[order]
    )
    clinics.set(xlabel="clinics, by cluster", ylabel="how sure", title="clusters of clinics (size: patients)")
    plt.show()


if __name__ == "__main__":
    main()
