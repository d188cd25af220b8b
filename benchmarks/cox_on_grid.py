"""Cox regression on 1,000 grid points with 20 covariates at ten sites, with and without secure sums."""

from __future__ import annotations

import time

import numpy as np

import fedspan as fs

N, D, SITES, TIMES = 20_000, 20, 10, 1000


def patients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    times = np.ceil(np.minimum(TIMES, 300 * rng.exponential(size=N) * np.exp(-0.3 * X[:, 0])))
    return X, np.column_stack([times, rng.uniform(size=N) < 0.7])


def main() -> dict[str, float]:
    X, y = patients()
    figures: dict[str, float] = {}
    for name, policy in (("plain", fs.Policy()), ("secure", fs.Policy(secure_sum=True))):
        fed = fs.federate(X, y, sites=np.arange(N) % SITES, policy=policy)
        begin = time.process_time()
        run = fs.FedCoxRegression(times=range(1, TIMES + 1)).fit(fed).run_
        seconds = time.process_time() - begin
        up, down = run.bytes_up / SITES / 1e6, run.bytes_down / SITES / 1e6
        print(f"{name}: {len(run.calls)} calls, {up:.1f} MB up and {down:.1f} MB down per site, {seconds:.1f} s")
        figures |= {f"{name} seconds": seconds, f"{name} MB up": up, f"{name} MB down": down}
    return figures


if __name__ == "__main__":
    main()
