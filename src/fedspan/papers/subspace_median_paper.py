"""Byzantine-resilient principal subspaces: Tables 1 and 2 of A. P. Singh and N. Vaswani, ISIT 2024, ours beside theirs.

Setting: n = 1000, r = 60, L = 3 sites of 600 rows, of which one is Byzantine ("bad"); eigenvalues 15 (r times), 1, then
0 (Table 1, rank r + 1) or 0.015 (Table 2, full rank). The slides do not state the tail of Table 2: 0.015 was chosen
because it fits their numbers. Errors are ``SD_F = ||(I - U U') U*||_F``, not divided by ``sqrt(r)``.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.progress import track

from fedspan.aggregation import Mean
from fedspan.arrays import Matrix
from fedspan.attacks import Alternating, Ones, Orthogonal
from fedspan.datasets import make_subspace_sites
from fedspan.engines.local.embedded import federate
from fedspan.federation import Attack, Federation
from fedspan.linalg import subspace_distance
from fedspan.linalg.medians.projector_median import Output
from fedspan.papers.attacks_paper import KNOWN_ATTACKS, OuterProduct, Rotated
from fedspan.papers.results_paper import Chart, Results, Table, published, spread
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.subspace_median import subspace_median

Method = Callable[[Federation], Matrix]
#: Seconds, and bytes per site both ways, of the runs of each method.
Costs = defaultdict[str, list[tuple[float, float]]]

N, R = 1000, 60
OUTPUTS: tuple[Output, ...] = ("node", "eigenspace", "trimmed")


ATTACKS: dict[str, Attack] = {"alternating": Alternating(), "ones": Ones(), "orthogonal": Orthogonal(3.0)}
#: Attacks that the slides do not have.
MORE_ATTACKS: dict[str, Attack] = {"orthogonal 100": Orthogonal(100.0), **KNOWN_ATTACKS}


@dataclass(frozen=True)
class SubspaceSetting:
    """Sizes of a problem in the slides' letters; `rows` are those of each site."""

    n: int
    r: int
    sites: int
    rows: int
    tail: float = 0.015

    def data(self, seed: int, base: int) -> tuple[Matrix, Federation]:
        """Draw the data, and return the true basis and the federation."""
        made = make_subspace_sites(self.n, self.r, self.sites, self.rows, tail=self.tail, seed=base + seed)
        return made.basis, federate(made.X, sites=made.sites, seed=seed)

    def __str__(self) -> str:
        return f"n = {self.n}, r = {self.r}, {self.rows} rows a site, tail {self.tail:g}"


SMALL = SubspaceSetting(500, 10, 18, 100)


def methods(rank: int, n: int, *, groups: int = 3, complete: bool = False) -> dict[str, Method]:
    """Return the methods of the tables by name, each from a federation to a basis (n, rank).

    With `complete`, subspace medians take replies of lower rank, completed by QR.
    """

    def means(fed: Federation) -> Matrix:
        return median_of_means(fed, rank=rank, n_columns=n, groups=groups, output="eigenspace").basis

    return {
        **{f"subspace median, {output}": _median(rank, output, complete) for output in OUTPUTS},
        "subspace median, node, QR-completed": _median(rank, "node", complete=True),
        "resilient power": lambda fed: resilient_power(fed, rank=rank, n_columns=n)[0],
        "mean power": lambda fed: resilient_power(fed, rank=rank, n_columns=n, aggregator=Mean())[0],
        f"median of {groups} means, eigenspace": means,
        "SVD of resilient covariance": lambda fed: resilient_covariance(fed, rank=rank)[0].components.T,
    }


def run(quick: bool = False) -> Results:
    """Run the tables, the sweep over bad sites and the batches; `quick` means fewer seeds and the slides' attacks."""
    seeds, few = (range(1), range(1)) if quick else (range(10), range(5))
    results = Results(
        "Byzantine-resilient principal subspaces",
        "Tables 1 and 2 of Singh and Vaswani (ISIT 2024), and what goes beyond them. The paper's numbers in brackets.",
    )
    costs: Costs = defaultdict(list)
    for table, tail in ((1, 0.0), (2, 0.015)):
        results.parts.append(_attack_table(table, tail, seeds, ATTACKS, costs))
        if not quick:
            results.parts.append(_attack_table(table, tail, seeds, MORE_ATTACKS))
    results.parts.append(_cost_table(costs, len(seeds)))
    results.parts.extend(_sweep(few, (0, 4, 8, 9) if quick else range(10)))
    results.parts.append(_collusion(few))
    results.parts.append(_batches(few))
    return results


def _median(rank: int, output: Output, complete: bool = False) -> Method:
    return lambda fed: subspace_median(fed, rank=rank, output=output, complete=complete).basis


def _corrupted(fed: Federation, attack: Attack, sites: Sequence[str], method: str, rank: int) -> Federation:
    used = OuterProduct(attack, rank) if "covariance" in method else attack
    return fed.corrupt(used, sites=sites) if sites else fed


def _error(
    fed: Federation, method: Method, truth: Matrix, costs: Costs | None = None, name: str = "power, no attack"
) -> float:
    start = time.perf_counter()
    with fed.begin(name) as run:
        basis = method(run)
    if costs is not None:
        traffic = (run.record.bytes_up + run.record.bytes_down) / len(run.sites)
        costs[name].append((time.perf_counter() - start, traffic))
    return subspace_distance(basis, truth)


def _attack_table(
    table: int, tail: float, seeds: Sequence[int], attacks: Mapping[str, Attack], costs: Costs | None = None
) -> Table:
    setting = SubspaceSetting(N, R, 3, 600, tail)
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    plain: list[float] = []
    for seed in track(seeds, description=f"Table {table}", transient=True):
        truth, fed = setting.data(seed, 1000)
        plain.append(_error(fed, lambda f: power(f, rank=R, n_columns=N)[0], truth, costs))
        for attack_name, attack in attacks.items():
            for name, method in methods(R, N).items():
                bad = _corrupted(fed, attack, [fed.sites[seed % 3]], name, R)
                errors[name, attack_name].append(_error(bad, method, truth, costs, name))
    slides = published("subspace-median")[f"table {table}"]
    column = {"subspace median, node": 0, "subspace median, node, QR-completed": 0, "resilient power": 1}

    def cell(name: str, attack: str) -> str:
        known = name in column and attack in slides
        return spread(errors[name, attack]) + (f" [{slides[attack][column[name]]}]" if known else "")

    rows = [[name, *(cell(name, attack) for attack in attacks)] for name in methods(R, N)]
    rows.append(["power, no attack", f"{spread(plain)} [{slides['ones'][2]}]", *[""] * (len(attacks) - 1)])
    kind = "rank r + 1" if tail == 0 else f"full rank, tail {tail:g}"
    more = "" if attacks is ATTACKS else "; more attacks"
    return Table(
        f"Table {table}: n = {N}, r = {R}, L = 3, one bad site, 600 rows a site, {kind}{more}",
        ["SD_F", *attacks],
        rows,
        f"Mean and deviation over {len(seeds)} seeds, in brackets the slides' value. Alternating and ones have rank 1, "
        "so such a reply is refused, or completed by arbitrary directions as plain QR does. Orthogonal has scale 3.",
    )


def _cost_table(costs: Costs, seeds: int) -> Table:
    rows = []
    for name, spent in costs.items():
        seconds, traffic = np.median(spent, axis=0)
        rows.append([name, f"{traffic / 1e6:.2f}", f"{seconds:.2f}"])
    return Table(
        "Cost per method, in the setting of the tables",
        ["method", "MB per site, both ways", "seconds"],
        rows,
        f"Medians over the runs of both tables ({seeds} seeds), with the work of all sites, one after the other in one "
        "process on one thread.",
    )


def _sweep(seeds: Sequence[int], counts: Sequence[int]) -> list[Chart]:
    """Return the error against the number of bad sites, in the small setting."""
    n, r = SMALL.n, SMALL.r
    compared = methods(r, n, groups=9, complete=True)  # completed, so that replies of rank 1 are not refused
    del compared["subspace median, node, QR-completed"]
    parts = []
    for attack_name, attack in (("alternating, QR-completed", Alternating()), ("orthogonal", Orthogonal(3.0))):
        errors: dict[str, list[list[float]]] = {name: [[] for _ in counts] for name in compared}
        for i, bad in enumerate(track(counts, description=f"bad sites, {attack_name}", transient=True)):
            for seed in seeds:
                truth, fed = SMALL.data(seed, 2000)
                for name, method in compared.items():
                    attacked = _corrupted(fed, attack, fed.sites[:bad], name, r)
                    errors[name][i].append(_error(attacked, method, truth))
        parts.append(
            Chart.over_seeds(
                f"Error against the number of bad sites of {SMALL.sites}: {attack_name}",
                "bad sites",
                counts,
                errors,
                f"Mean SD_F (and deviation, where printed) over {len(seeds)} seeds; {SMALL}. The bad sites are the "
                f"first by name, so that they share batches. The largest possible value is {np.sqrt(r):.2f}.",
                log=True,
            )
        )
    return parts


def _collusion(seeds: Sequence[int]) -> Chart:
    """Return the error when 39 % of the sites collude, in units of the median error of an honest site alone."""
    r, bad = SMALL.r, 7
    angles = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, np.pi / 2)
    errors: dict[str, list[list[float]]] = {output: [[] for _ in angles] for output in OUTPUTS}
    for seed in track(seeds, description="collusion", transient=True):
        truth, fed = SMALL.data(seed, 4000)
        alone = float(np.median([_error(fed.subset([name]), _median(r, "node"), truth) for name in fed.sites[bad:]]))
        for i, angle in enumerate(angles):
            attacked = fed.corrupt(Rotated(angle), sites=fed.sites[:bad])
            for output in OUTPUTS:
                errors[output][i].append(_error(attacked, _median(r, output), truth) / alone)
    return Chart.over_seeds(
        f"{bad} of {SMALL.sites} sites send one and the same rotated subspace",
        "angle, degrees",
        [round(float(np.degrees(angle)), 1) for angle in angles],
        errors,
        f"Mean over {len(seeds)} seeds of SD_F over the median SD_F of an honest site alone; {SMALL}.",
    )


def _batches(seeds: Sequence[int]) -> Table:
    """Return Subspace Median of Means against the number of batches."""
    n, r, sites = SMALL.n, SMALL.r, SMALL.sites

    def error(seed: int, groups: int, output: Output, bad: int) -> float:
        truth, fed = SMALL.data(seed, 3000)
        spoilt = [fed.sites[i * (sites // groups)] for i in range(bad)]  # each in a batch of its own

        def means(fed: Federation) -> Matrix:
            return median_of_means(fed, rank=r, n_columns=n, groups=groups, output=output).basis

        method = _median(r, output, complete=True) if groups == sites else means
        return _error(fed.corrupt(Alternating(), sites=spoilt), method, truth)

    rows = []
    for groups in track((18, 9, 6), description="batches", transient=True):
        for output in OUTPUTS[:2]:
            cells = [spread([error(seed, groups, output, bad) for seed in seeds]) for bad in (1, 2, 3)]
            rows.append([f"{groups} batches, {output}", *cells])
    return Table(
        "Subspace Median of Means: n = 500, r = 10, L = 18, 100 rows a site, tail 0.015, alternating",
        ["SD_F", "1 bad", "2 bad", "3 bad"],
        rows,
        f"Mean and deviation over {len(seeds)} seeds; bad sites in different batches. 18 batches is one shot.",
    )
