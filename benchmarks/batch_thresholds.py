"""The share of all rows above the threshold after 50 batches of 200 rows, where 5 % was asked for.

Four kinds of rows with 7 columns, at five sites; four draws of each. Prints the percentages.
"""

from __future__ import annotations

import numpy as np

import fedspan as fs

ROWS, COLUMNS, BATCHES, SITES, DRAWS = 10_000, 7, 50, 5, 4
KINDS = (fs.FedPCADetector, fs.FedCentersDetector, fs.FedIsolationDetector, fs.FedAnomalyDetector)


def drawn(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return rows of a kind."""
    mixing, Z = rng.normal(size=(COLUMNS, COLUMNS)), rng.normal(size=(ROWS, COLUMNS))
    if kind == "normal":
        return Z @ mixing
    if kind == "lognormal":
        return np.exp(0.5 * Z @ mixing)
    if kind == "heavy tails":
        return rng.standard_t(3, size=(ROWS, COLUMNS))
    return Z + 10.0 * rng.integers(0, 3, size=(ROWS, 1))


def share_above(detector: fs.FedPCADetector, X: np.ndarray, sites: np.ndarray) -> float:
    """Return the share of the rows above the threshold after all batches, in percent."""
    for number, rows in enumerate(np.array_split(np.arange(ROWS), BATCHES)):
        detector.partial_fit(X[rows], sites=sites[rows], batch=str(number))
    return 100.0 * float(np.mean(detector.predict(X) == -1))


def main() -> None:
    """Print a line for each detector and kind of rows."""
    for name in ("normal", "lognormal", "heavy tails", "three clusters"):
        for kind in KINDS:
            found = []
            for seed in range(30, 30 + DRAWS):
                rng = np.random.default_rng(seed)
                found.append(share_above(kind(random_state=0), drawn(name, rng), rng.integers(SITES, size=ROWS)))
            print(f"{name:15} {kind.__name__:22}", *(f"{share:.2f}" for share in found), flush=True)


if __name__ == "__main__":
    main()
