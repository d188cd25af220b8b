"""
Principal subspaces under attack
================================

The setting of Table 1 of A. P. Singh and N. Vaswani, "Byzantine-Resilient Federated Principal Subspace Estimation"
(ISIT 2024): 1000 columns, 60 directions to be found, three sites of 600 rows, one of which is malicious. The error
is ``SD_F``, between 0 and ``sqrt(60) = 7.75``. Then a sweep: more and more of eleven sites are malicious. ``fedspan
reproduce subspace-median`` prints the whole tables with more seeds, beside the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import fedspan as fs
from fedspan.datasets import make_subspace_sites
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.subspace_median import subspace_median

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None

ATTACKS = {"alternating": fs.attacks.Alternating(), "ones": fs.attacks.Ones(), "orthogonal": fs.attacks.Orthogonal(3.0)}
PAPER = {"resilient power method": (0.898, 0.952, 0.208), "subspace median, as in the paper": (0.091, 0.091, 0.091)}


# %%
# The methods are protocols: functions of a federation. The subspace median of the paper returns the subspace of one
# site, the one nearest to the median; ours is the mean of the sites near a majority.


def methods(rank: int, n: int) -> dict[str, Callable[[fs.Federation], np.ndarray]]:
    """Return them by name, each from a federation to a basis (n, rank)."""
    power = {"rank": rank, "n_columns": n}
    mean = power | {"aggregator": fs.aggregation.Mean()}
    median = {"rank": rank, "complete": True}  # replies of too low a rank are completed, as in the paper
    return {
        "power method": lambda fed: fed.run(resilient_power, **mean)[0],
        "resilient power method": lambda fed: fed.run(resilient_power, **power)[0],
        "subspace median, as in the paper": lambda fed: fed.run(subspace_median, output="node", **median).basis,
        "subspace median": lambda fed: fed.run(subspace_median, **median).basis,
    }


def main() -> None:
    data = make_subspace_sites(1000, 60, 3, 600, seed=1000)
    fed = fs.federate(data.X, sites=data.sites)
    table: dict[str, list[float]] = {}
    print("SD_F, one of three sites lies (n = 1000, r = 60, seed 1000); in brackets the paper's")
    for name, method in methods(60, 1000).items():
        attacked = [fed.corrupt(attack, sites=fed.sites[:1]) for attack in ATTACKS.values()]
        table[name] = [fs.linalg.subspace_distance(method(bad), data.basis) for bad in attacked]
        theirs = [f" [{value}]" for value in PAPER.get(name, ())] or [""] * 3
        cells = (f"{kind} {value:.3f}{paper}" for kind, value, paper in zip(ATTACKS, table[name], theirs, strict=True))
        print(f"{name:36}", *cells, sep="  ")

    data = make_subspace_sites(120, 6, 11, 100, tail=0.015, seed=1)
    fed = fs.federate(data.X, sites=data.sites)
    sweep: dict[str, list[float]] = {}
    print("\nSD_F with 0 to 6 malicious sites among eleven sites (n = 120, r = 6, seed 1, orthogonal)")
    for name, method in methods(6, 120).items():
        attacked = [fed] + [fed.corrupt(ATTACKS["orthogonal"], sites=fed.sites[:count]) for count in range(1, 7)]
        sweep[name] = [fs.linalg.subspace_distance(method(bad), data.basis) for bad in attacked]
        print(f"{name:36}", *(f"{value:.3f}" for value in sweep[name]), sep="  ")
    if plt:
        draw(table, sweep)


# %%
# Bars for the table, lines for the sweep. With six malicious sites of eleven the majority has changed sides, and no
# rule can help.


def draw(table: dict[str, list[float]], sweep: dict[str, list[float]]) -> None:
    """Draw both."""
    figure, (bars, lines) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for i, (name, values) in enumerate(table.items()):
        bars.bar(np.arange(len(values)) + 0.2 * (i - 1.5), values, 0.2, label=name)
        lines.plot(sweep[name], marker="o")
    bars.set(
        yscale="log",
        ylabel="SD_F",
        title="one of three sites lies",
        xticks=range(len(ATTACKS)),
        xticklabels=list(ATTACKS),
    )
    lines.set(yscale="log", xlabel="malicious sites among eleven", title="a Byzantine sweep")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


if __name__ == "__main__":
    main()
