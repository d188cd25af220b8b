"""Scaler, PCA, quantiles, k-means and PCA detector under differential privacy: the error against epsilon.

*Curves.* 20,000 rows of 20 columns at ten sites: eight groups, or three directions with noise. Public bounds are a ball
of radius 12, or for quantiles the range from -12 to 12; delta is 1e-6, the unit one row of one site. Secure sums, so
that each site adds a share of the noise, and plain ones, where each adds all of it. Means of five seeds.

*PCA as published.* The setting of k-DP-PCA (Duengler and Sanyal, "An iterative algorithm for differentially private
k-PCA with adaptive noise", NeurIPS 2025, Figure 1): d = 200, k = 2, lambda_1 = 10, epsilon 1, delta .01, noise of the
deviation .025 or .001, means of 50 trials, all rows at one site. Not given there as numbers, and chosen here: both
eigenvalues are 10, rows are normal, and rows are drawn in to a ball of radius sqrt(20), their root mean square.

``FEDSPAN_DP_SEEDS=5`` and ``FEDSPAN_DP_TRIALS=50`` set the numbers of seeds and trials.
"""

from __future__ import annotations

import os
import time

import numpy as np
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.linalg import subspace_distance
from fedspan.sums.quantiles import quantiles

SEEDS, TRIALS = int(os.environ.get("FEDSPAN_DP_SEEDS", "5")), int(os.environ.get("FEDSPAN_DP_TRIALS", "50"))
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
ROWS, COLUMNS, SITES, DELTA, RADIUS = 20_000, 20, 10, 1e-6, 12.0


def main() -> dict[str, float]:
    with threadpool_limits(1):
        return curves() | published()


def curves() -> dict[str, float]:
    figures: dict[str, float] = {}
    for carried in ("secure", "plain"):
        for epsilon in EPSILONS:
            began = time.perf_counter()
            found = [_errors(epsilon, carried == "secure", seed) for seed in range(SEEDS)]
            means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            figures |= {f"epsilon {epsilon:g}, {carried} sums: {name}": value for name, value in means.items()}
            values = ", ".join(f"{name} {value:.4f}" for name, value in means.items())
            seconds = (time.perf_counter() - began) / SEEDS
            print(f"epsilon {epsilon:g}, {carried} sums: {values}; {seconds:.0f} s a seed", flush=True)
    return figures


def _errors(epsilon: float, secure: bool, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(3, COLUMNS))
    X, new, odd = (_rows(rng, n, directions, noise) for n, noise in ((ROWS, 0.3), (5000, 0.3), (5000, 0.6)))
    groups = rng.uniform(-3.0, 3.0, size=(8, COLUMNS))
    G = groups[rng.integers(0, 8, ROWS)] + 0.5 * rng.normal(size=(ROWS, COLUMNS))
    policy, sites = fs.Policy(secure_sum=secure), np.arange(ROWS) % SITES
    ball = fs.privacy.GaussianMoments(epsilon, DELTA, clip=RADIUS)
    fed, grouped = (fs.federate(table, sites=sites, policy=policy, seed=seed) for table in (X, G))
    scaler = fs.FedStandardScaler(privacy=ball).fit(fed)
    pca = fs.FedPCA(3, privacy=ball).fit(fed)
    pooled = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3].T
    first = fs.federate(X[:, :1], sites=sites, policy=policy, seed=seed)
    quantile = quantiles(first, level=0.95, privacy=ball)
    k_means = fs.FedKMeans(8, privacy=ball, random_state=seed).fit(grouped)
    best = fs.FedKMeans(8, random_state=seed, init=groups).fit(G).inertia_
    detector = fs.FedPCADetector(3, privacy=ball).fit(fed)
    truth = np.repeat([0, 1], 5000)
    return {
        "scaler, error of means": float(np.max(np.abs(scaler.mean_ - X.mean(axis=0)) / X.std(axis=0))),
        "scaler, error of deviations": float(np.max(np.abs(scaler.scale_ / X.std(axis=0) - 1))),
        "PCA, sine of the largest angle": subspace_distance(pca.components_.T, pooled, "spectral"),
        "0.95 quantile, error of the level": float(np.abs((X[:, :1] <= quantile).mean() - 0.95)),
        "k-means, inertia over the best": -k_means.score(G) / best,
        "detector, false positives at 0.05": float((detector.predict(new) == -1).mean()),
        "detector, AUC": float(roc_auc_score(truth, -detector.score_samples(np.concatenate([new, odd])))),
    }


def _rows(rng: np.random.Generator, n: int, directions: np.ndarray, noise: float) -> np.ndarray:
    return rng.normal(size=(n, 3)) @ directions + noise * rng.normal(size=(n, directions.shape[1]))


def published() -> dict[str, float]:
    figures: dict[str, float] = {}
    privacy = fs.privacy.GaussianMoments(1.0, 0.01, clip=np.sqrt(20.0))
    for noise in (0.025, 0.001):
        for n in (500, 1000, 2000, 5000, 10_000):
            found = np.array([_published_trial(n, noise, privacy, seed) for seed in range(TRIALS)])
            (lost, angle, plain), half = found.mean(axis=0), 1.96 * found.std(axis=0, ddof=1) / np.sqrt(TRIALS)
            print(
                f"d 200, k 2, noise {noise:g}, {n} rows: share of the variance lost {lost:.5f} +- {half[0]:.5f}, sine "
                f"{angle:.4f} +- {half[1]:.4f}; without privacy {plain:.5f}",
                flush=True,
            )
            figures[f"d 200, noise {noise:g}, {n} rows: sine of the largest angle"] = float(angle)
    return figures


def _published_trial(n: int, noise: float, privacy: fs.privacy.GaussianMoments, seed: int) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(200, 2)))[0]
    X = np.sqrt(10.0) * rng.normal(size=(n, 2)) @ U.T + noise * rng.normal(size=(n, 200))
    found = fs.FedPCA(2, center=False, privacy=privacy, random_state=seed).fit(X).components_.T
    plain = np.linalg.svd(X, full_matrices=False)[2][:2].T
    lost = 10.0 * (2.0 - np.sum((U.T @ found) ** 2)) / (20.0 + 2 * noise**2)
    return lost, subspace_distance(found, U, "spectral"), subspace_distance(plain, U, "spectral")


if __name__ == "__main__":
    main()
