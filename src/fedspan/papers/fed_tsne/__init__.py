"""Federated t-SNE, UMAP and spectral clustering: the paper's tables and figures, ours beside them.

D. Qiao, X. Ding and J. Fan, "Federated t-SNE and UMAP for distributed data visualization", AAAI 2025.

The paper maps 40,000 rows of MNIST and of Fashion-MNIST; of the latter the 10,000 rows of the test file are used here.
Centralised maps have the same libraries and settings. "Paper's form" is the distance of its Algorithm 2, "ours" that
by landmark coordinates; landmarks are learned in the same way for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from fedspan.papers.fed_tsne.learned_paper import FACES, GUARANTEED, LOADERS, PAPER_NOISE, PaperRows
from fedspan.papers.fed_tsne.map_tables_paper import (
    Found,
    MapSetting,
    centralised,
    federated,
    map_pictures,
    map_tables,
    words,
)
from fedspan.papers.fed_tsne.sweeps_paper import by_landmarks, by_noise, by_sites, clusters_table, convergence
from fedspan.papers.parallel_paper import side_by_side
from fedspan.papers.results_paper import Part, Results

#: Without noise and with one local step any split has the same landmarks, and so the same maps.
PLAIN, PLAIN_IID = MapSetting("one class"), MapSetting("IID")
NOISY, NOISY_IID = MapSetting("one class", PAPER_NOISE), MapSetting("IID", PAPER_NOISE)
PRIVATE = MapSetting("one class", GUARANTEED, ("coordinates",))
PRIVATE_TSNE = MapSetting("one class", GUARANTEED, ("coordinates",), ("t-SNE",))
#: What is shown of large sets: without noise all, with noise the paper's form.
LARGE = (
    PLAIN,
    MapSetting("IID", PAPER_NOISE, ("paper",), ("t-SNE",)),
    MapSetting("one class", PAPER_NOISE, ("paper",)),
)


@dataclass(frozen=True)
class Plan:
    """How much is run: rows by data set, and the settings that are compared.

    Numbers of sites, noises and rounds are compared with `few_landmarks`: noise for 100 sites and 500 landmarks takes
    long.
    """

    maps: Mapping[str, tuple[int, Sequence[MapSetting]]]
    clusters: Mapping[str, int]
    swept: tuple[str, int]
    sites: Mapping[str, Sequence[int]]
    landmarks: Sequence[int]
    betas: Sequence[float]
    few_landmarks: int = 100
    rounds: int = 50

    def rows(self) -> PaperRows:
        """Load the rows of the sweeps."""
        return LOADERS[self.swept[0]](self.swept[1])

    def rows_of_few(self) -> PaperRows:
        """Load the same rows, for few landmarks."""
        return replace(self.rows(), n_landmarks=self.few_landmarks)


FULL = Plan(
    maps={
        "MNIST": (40_000, LARGE),
        "Fashion-MNIST": (40_000, (*LARGE, PRIVATE_TSNE)),
        "COIL-20": (1440, (PLAIN,)),
        "mice": (1080, (PLAIN_IID, PLAIN, NOISY_IID, NOISY, PRIVATE)),
    },
    clusters={"MNIST": 2500, "COIL-20": 1440, "mice": 1080},
    swept=("MNIST", 3000),
    sites={"by class": (5, 10), "IID": (5, 10, 20, 50, 100)},
    landmarks=(20, 50, 100, 200, 500),
    betas=(0.5, 1.0, 2.0, 5.0),
)
QUICK = Plan(
    maps={
        "MNIST": (5000, (PLAIN,)),
        "mice": (1080, (PLAIN, MapSetting("one class", PAPER_NOISE, faces=("t-SNE",)), PRIVATE_TSNE)),
    },
    clusters={"mice": 1080},
    swept=("mice", 1080),
    sites={"by class": (8,), "IID": (20,)},
    landmarks=(20, 100),
    betas=(1.0, 5.0),
)


def run(quick: bool = False) -> Results:
    """Run tables and figures; `quick` means fewer rows and settings."""
    return run_plan(QUICK if quick else FULL)


def run_plan(plan: Plan, processes: int | None = None) -> Results:
    """Run a plan, independent jobs side by side on `processes` (default: one for each core)."""
    pooled = [(_centralised, data, n) for data, (n, _) in plan.maps.items()]
    others = [(_other, name, plan) for name in OTHERS]
    done = side_by_side([*pooled, *others], "pooled maps, sweeps and clusters", processes)
    truth = dict(zip(plan.maps, done, strict=False))
    settings = [(data, n, setting) for data, (n, several) in plan.maps.items() for setting in several]
    maps = side_by_side(
        [(_federated, data, n, truth[data][0], setting, plan) for data, n, setting in settings],
        "federated maps",
        processes,
    )
    parts: list[Part] = []
    found: dict[str, Found] = {}
    for data, (n, _) in plan.maps.items():
        several = [truth[data][1], *(lines for (of, *_), lines in zip(settings, maps, strict=True) if of == data)]
        found[data] = {face: [line for one in several for line in one.get(face, [])] for face in FACES}
        rows = LOADERS[data](n)
        parts += [*map_tables(data, rows, found[data], plan.rounds), map_pictures(rows, found[data])]
    return Results(
        "Federated t-SNE, UMAP and spectral clustering",
        "FedDL, Fed-tSNE, Fed-UMAP and Fed-SpeClust (Qiao, Ding and Fan, 2025) beside centralised maps, with the "
        "epsilon that each noisy row really has, and what the coordinator can rebuild of the rows.",
        [*parts, *done[len(pooled) :], words(found)],
    )


# The jobs: each loads its own rows, which are more to send than to read.


def _centralised(data: str, n: int) -> tuple[NDArray[Any], Found]:
    return centralised(LOADERS[data](n))


def _federated(data: str, n: int, truth: NDArray[Any], setting: MapSetting, plan: Plan) -> Found:
    return federated(LOADERS[data](n), truth, setting, plan.rounds)


def _other(name: str, plan: Plan) -> Part:
    return OTHERS[name](plan)


#: Tables and figures that need no maps of whole sets, in the order of the page.
OTHERS: dict[str, Callable[[Plan], Part]] = {
    "sites": lambda plan: by_sites(plan.rows_of_few(), plan.sites, plan.rounds),
    "noise": lambda plan: by_noise(plan.rows_of_few(), plan.betas, plan.rounds),
    "landmarks": lambda plan: by_landmarks(plan.rows(), plan.landmarks, plan.rounds),
    "convergence": lambda plan: convergence(plan.rows_of_few(), plan.rounds),
    "clusters": lambda plan: clusters_table({name: LOADERS[name](n) for name, n in plan.clusters.items()}, plan.rounds),
}
