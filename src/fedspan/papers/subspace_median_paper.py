"""Byzantine-resilient principal subspaces: Tables 1 and 2 of A. P. Singh and N. Vaswani, ISIT 2024, ours beside theirs.

Setting: n = 1000, r = 60, L = 3 sites of 600 rows, one of them bad; eigenvalues 15 (r times), 1, then 0 (Table 1,
rank r + 1) or 0.015 (Table 2, full rank). The slides do not say what the tail of Table 2 is: 0.015 was chosen because
it fits their numbers. Errors are ``SD_F = ||(I - U U') U*||_F``, not divided by ``sqrt(r)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fedspan.aggregation import Mean
from fedspan.attacks import (
    ALittleIsEnough,
    Alternating,
    InnerProduct,
    Mimic,
    Ones,
    Orthogonal,
    RandomNoise,
    ScaledReverse,
    SignFlip,
)
from fedspan.datasets import make_subspace_sites
from fedspan.engines.local.embedded import federate
from fedspan.federation import Attack, AttackedCall, Federation
from fedspan.linalg import orthonormalize, subspace_distance, top_eigenpairs
from fedspan.linalg import subspace_median as median_of_subspaces
from fedspan.linalg.medians.projector_median import Output
from fedspan.papers.results_paper import Chart, Results, Table, spread
from fedspan.pca.covariance import packed, unpacked
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.subspace_median import subspace_median

Matrix = NDArray[np.float64]
Method = Callable[[Federation], Matrix]

N, R = 1000, 60
OUTPUTS: tuple[Output, ...] = ("node", "eigenspace", "trimmed")


@dataclass(frozen=True)
class OuterProduct:
    """Send ``A A'`` where another attack would send A: what a bad site does to sites that send covariances."""

    attack: Attack
    rank: int

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the covariances of the bad sites."""
        bases = {site: {"basis": top_eigenpairs(unpacked(replies[site]["phi"]), self.rank)[1]} for site in bad}
        written = self.attack(bases, bad, rng, call)
        return {
            site: {**replies[site], "phi": packed(written[site]["basis"] @ written[site]["basis"].T)} for site in bad
        }


@dataclass(frozen=True)
class Rotated:
    """Send, all alike, what the honest sites agree on turned by `angle` (in radians) in every direction.

    Small angles are the dangerous ones: such a lie lies among the honest replies.
    """

    angle: float

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the bases of the bad sites."""
        honest = np.stack([reply["basis"] for site, reply in replies.items() if site not in bad])
        agreed = median_of_subspaces(honest).basis
        other = orthonormalize(np.hstack([agreed, rng.standard_normal(agreed.shape)]))[:, agreed.shape[1] :]
        return {site: {"basis": np.cos(self.angle) * agreed + np.sin(self.angle) * other} for site in bad}


ATTACKS: dict[str, Attack] = {"alternating": Alternating(), "ones": Ones(), "orthogonal": Orthogonal(3.0)}
#: Attacks that the slides do not have.
MORE_ATTACKS: dict[str, Attack] = {
    "orthogonal 100": Orthogonal(100.0),
    "sign flip": SignFlip(),
    "reverse x10": ScaledReverse(10.0),
    "little is enough": ALittleIsEnough(1.5),
    "inner product": InnerProduct(0.1),
    "random": RandomNoise(100.0),
    "mimic": Mimic(),
}
#: What the slides give for each table and attack: SubsMed, ResPowMeth, PowMeth without attack.
PAPER = {
    1: {"alternating": (0.091, 0.898, 0.050), "ones": (0.091, 0.952, 0.050), "orthogonal": (0.091, 0.208, 0.050)},
    2: {"alternating": (0.348, 0.972, 0.182), "ones": (0.349, 0.990, 0.182), "orthogonal": (0.348, 0.366, 0.182)},
}


def methods(rank: int, n: int) -> dict[str, Method]:
    """Return the methods of the tables by name, each from a federation to a basis (n, rank)."""
    found: dict[str, Method] = {}
    for output in OUTPUTS:
        found[f"subspace median, {output}"] = _median(rank, output, complete=False)
    found["subspace median, node, QR-completed"] = _median(rank, "node", complete=True)
    found["resilient power"] = lambda fed: resilient_power(fed, rank=rank, n_columns=n)[0]
    found["mean power"] = lambda fed: resilient_power(fed, rank=rank, n_columns=n, aggregator=Mean())[0]
    found["median of 3 means, eigenspace"] = lambda fed: median_of_means(fed, rank=rank, n_columns=n, groups=3).basis
    found["SVD of resilient covariance"] = lambda fed: resilient_covariance(fed, rank=rank)[0].components.T
    return found


def run(quick: bool = False) -> Results:
    """Run the tables, the sweep over bad sites and the batches; `quick` means fewer seeds and the slides' attacks."""
    seeds = range(1) if quick else range(10)
    results = Results(
        "Byzantine-resilient principal subspaces",
        "Tables 1 and 2 of Singh and Vaswani (ISIT 2024), and what goes beyond them. The paper's numbers in brackets.",
    )
    costs: dict[str, list[tuple[float, float]]] = {}
    for table, tail in ((1, 0.0), (2, 0.015)):
        results.parts.append(_attack_table(table, tail, seeds, costs, ATTACKS))
        if not quick:
            results.parts.append(_attack_table(table, tail, seeds, {}, MORE_ATTACKS))
    results.parts.append(_cost_table(costs, len(seeds)))
    results.parts.extend(_sweep(range(1), (0, 4, 8, 9)) if quick else _sweep(range(5), range(10)))
    results.parts.append(_collusion(range(1) if quick else range(5)))
    results.parts.append(_batches(range(1) if quick else range(5)))
    return results


def _median(rank: int, output: Output, complete: bool) -> Method:
    return lambda fed: subspace_median(fed, rank=rank, output=output, complete=complete).basis


def _attack_table(
    table: int,
    tail: float,
    seeds: Sequence[int],
    costs: dict[str, list[tuple[float, float]]],
    attacks: Mapping[str, Attack],
) -> Table:
    errors: dict[tuple[str, str], list[float]] = {}
    unspoilt: list[float] = []
    for seed in track(seeds, description=f"Table {table}", transient=True):
        data = make_subspace_sites(N, R, 3, 600, tail=tail, seed=1000 + seed)
        fed = federate(data.X, sites=data.sites, seed=seed)
        unspoilt.append(_error(fed, lambda f: power(f, rank=R, n_columns=N)[0], data, costs))
        for attack_name, attack in attacks.items():
            for name, method in methods(R, N).items():
                used = OuterProduct(attack, R) if "covariance" in name else attack
                bad = fed.corrupt(used, sites=[fed.sites[seed % 3]])
                errors.setdefault((name, attack_name), []).append(_error(bad, method, data, costs, name))
    rows = []
    for name in methods(R, N):
        cells = [f"{spread(errors[name, attack])}{_in_brackets(table, name, attack)}" for attack in attacks]
        rows.append([name, *cells])
    rows.append(["power, no attack", f"{spread(unspoilt)} [{PAPER[table]['ones'][2]}]", *[""] * (len(attacks) - 1)])
    kind = ("rank r + 1" if tail == 0 else f"full rank, tail {tail:g}") + (
        "" if attacks is ATTACKS else "; more attacks"
    )
    return Table(
        f"Table {table}: n = {N}, r = {R}, L = 3, one bad site, 600 rows a site, {kind}",
        ["SD_F", *attacks],
        rows,
        f"Mean and deviation over {len(seeds)} seeds, in brackets the slides' value. Alternating and ones have rank 1, "
        "so such a reply is refused, or completed by arbitrary directions as plain QR does. Orthogonal has scale 3.",
    )


def _in_brackets(table: int, name: str, attack: str) -> str:
    column = {"subspace median, node": 0, "subspace median, node, QR-completed": 0, "resilient power": 1}.get(name)
    return "" if column is None or attack not in PAPER[table] else f" [{PAPER[table][attack][column]}]"


def _error(
    fed: Federation,
    method: Method,
    data: Any,
    costs: dict[str, list[tuple[float, float]]],
    name: str = "power, no attack",
) -> float:
    start = time.perf_counter()
    with fed.begin(name) as run:
        basis = method(run)
    sites = len(run.sites)
    costs.setdefault(name, []).append(
        (time.perf_counter() - start, (run.record.bytes_up + run.record.bytes_down) / sites)
    )
    return subspace_distance(basis, data.basis)


def _cost_table(costs: Mapping[str, Sequence[tuple[float, float]]], seeds: int) -> Table:
    rows = []
    for name, spent in costs.items():
        seconds, traffic = (np.array([entry[i] for entry in spent]) for i in (0, 1))
        rows.append([name, f"{np.median(traffic) / 1e6:.2f}", f"{np.median(seconds):.2f}"])
    return Table(
        "Cost per method, in the setting of the tables",
        ["method", "MB per site, both ways", "seconds"],
        rows,
        f"Medians over the runs of both tables ({seeds} seeds), with the work of all sites, one after the other in one "
        "process on one thread.",
    )


def _sweep(seeds: Sequence[int], counts: Sequence[int]) -> list[Chart]:
    """Error against the number of bad sites, in the small setting."""
    n, r, sites, rows = 500, 10, 18, 100
    chosen = [*(f"subspace median, {output}" for output in OUTPUTS), "resilient power", "mean power"]
    chosen += ["median of 9 means", "SVD of resilient covariance"]
    parts = []
    for attack_name, attack in (("alternating, QR-completed", Alternating()), ("orthogonal", Orthogonal(3.0))):
        errors: dict[str, list[list[float]]] = {name: [] for name in chosen}
        for bad in track(counts, description=f"bad sites, {attack_name}", transient=True):
            for name in chosen:
                errors[name].append([])
            for seed in seeds:
                data = make_subspace_sites(n, r, sites, rows, tail=0.015, seed=2000 + seed)
                fed = federate(data.X, sites=data.sites, seed=seed)
                for name in chosen:
                    method = {**methods(r, n), "median of 9 means": _nine_means(r, n)}[name]
                    used = OuterProduct(attack, r) if "covariance" in name else attack
                    attacked = fed.corrupt(used, sites=fed.sites[:bad]) if bad else fed
                    if name.startswith("subspace"):  # completed, so that rank-1 replies stay in the game
                        method = _median(r, _output_of(name), complete=True)
                    errors[name][-1].append(_error(attacked, method, data, {}))
        parts.append(
            Chart(
                f"Error against the number of bad sites of {sites}: {attack_name}",
                "bad sites",
                list(counts),
                {name: [float(np.mean(values)) for values in errors[name]] for name in chosen},
                f"Mean SD_F (and deviation, where printed) over {len(seeds)} seeds; n = {n}, r = {r}, {rows} rows a "
                "site, tail 0.015. The bad sites are the first by name, so that they share batches. "
                f"The largest possible value is {np.sqrt(r):.2f}.",
                log=True,
                deviations={name: [float(np.std(values)) for values in errors[name]] for name in chosen},
            )
        )
    return parts


def _nine_means(rank: int, n: int) -> Method:
    return lambda fed: median_of_means(fed, rank=rank, n_columns=n, groups=9).basis


def _collusion(seeds: Sequence[int]) -> Chart:
    """Error when 39 % of the sites collude, in units of the median error of an honest site alone."""
    n, r, sites, rows, bad = 500, 10, 18, 100, 7
    angles = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, np.pi / 2)
    errors: dict[str, list[list[float]]] = {output: [[] for _ in angles] for output in OUTPUTS}
    for seed in track(seeds, description="collusion", transient=True):
        data = make_subspace_sites(n, r, sites, rows, tail=0.015, seed=4000 + seed)
        fed = federate(data.X, sites=data.sites, seed=seed)
        alone = [_error(fed.subset([name]), _median(r, "node", False), data, {}) for name in fed.sites[bad:]]
        for i, angle in enumerate(angles):
            attacked = fed.corrupt(Rotated(angle), sites=fed.sites[:bad])
            for output in OUTPUTS:
                error = _error(attacked, _median(r, output, False), data, {})
                errors[output][i].append(error / float(np.median(alone)))
    return Chart(
        f"{bad} of {sites} sites send one and the same rotated subspace",
        "angle, degrees",
        [round(float(np.degrees(angle)), 1) for angle in angles],
        {output: [float(np.mean(values)) for values in errors[output]] for output in OUTPUTS},
        f"Mean over {len(seeds)} seeds of SD_F over the median SD_F of an honest site alone; n = {n}, r = {r}, "
        f"{rows} rows a site, tail 0.015.",
        deviations={output: [float(np.std(values)) for values in errors[output]] for output in OUTPUTS},
    )


def _output_of(name: str) -> Output:
    return next(output for output in OUTPUTS if output in name)


def _batches(seeds: Sequence[int]) -> Table:
    """Subspace Median of Means against the number of batches."""
    n, r, sites, rows = 500, 10, 18, 100
    outputs: tuple[Output, ...] = ("node", "eigenspace")
    table_rows = []
    for groups in track((18, 9, 6), description="batches", transient=True):
        for output in outputs:
            cells = []
            for bad in (1, 2, 3):
                errors = []
                for seed in seeds:
                    data = make_subspace_sites(n, r, sites, rows, tail=0.015, seed=3000 + seed)
                    fed = federate(data.X, sites=data.sites, seed=seed)
                    spoilt = [fed.sites[i * (sites // groups)] for i in range(bad)]  # each in a batch of its own
                    attacked = fed.corrupt(Alternating(), sites=spoilt)

                    def method(f: Federation, groups: int = groups, output: Output = output) -> Matrix:
                        if groups == sites:
                            return subspace_median(f, rank=r, output=output, complete=True).basis
                        return median_of_means(f, rank=r, n_columns=n, groups=groups, output=output).basis

                    errors.append(_error(attacked, method, data, {}))
                cells.append(spread(errors))
            table_rows.append([f"{groups} batches, {output}", *cells])
    return Table(
        "Subspace Median of Means: n = 500, r = 10, L = 18, 100 rows a site, tail 0.015, alternating",
        ["SD_F", "1 bad", "2 bad", "3 bad"],
        table_rows,
        f"Mean and deviation over {len(seeds)} seeds; bad sites in different batches. 18 batches is one shot.",
    )
