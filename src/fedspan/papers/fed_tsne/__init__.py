"""Federated t-SNE, UMAP and spectral clustering: the paper's tables and figures, ours beside them.

D. Qiao, X. Ding and J. Fan, "Federated t-SNE and UMAP for distributed data visualization", AAAI 2025.

The paper maps 40,000 rows of MNIST and of Fashion-MNIST; of the latter the 10,000 rows of the test file are used here.
Centralised maps have the same libraries and settings. "Paper's form" is the distance of its Algorithm 2, "ours" that
by landmark coordinates; landmarks are learned in the same way for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from fedspan.papers.fed_tsne.clusters_paper import clusters_table
from fedspan.papers.fed_tsne.landmarks_paper import convergence
from fedspan.papers.fed_tsne.layouts_paper import Pooled
from fedspan.papers.fed_tsne.map_tables_paper import (
    NOISY,
    NOISY_IID,
    PLAIN,
    PLAIN_IID,
    PRIVATE,
    Found,
    Setting,
    centralised,
    federated,
    map_pictures,
    map_tables,
)
from fedspan.papers.fed_tsne.map_words_paper import words
from fedspan.papers.fed_tsne.rows_paper import LOADERS
from fedspan.papers.fed_tsne.sweeps_paper import by_landmarks, by_noise, by_sites
from fedspan.papers.parallel_paper import jobs
from fedspan.papers.results_paper import Part, Results


@dataclass(frozen=True)
class Plan:
    """How much is run: rows by data set, and the settings that are compared."""

    maps: Mapping[str, tuple[int, Sequence[Setting]]]
    clusters: Mapping[str, int]
    convergence: tuple[str, int]
    swept: tuple[str, int]
    sites: Mapping[str, Sequence[int]]
    landmarks: Sequence[int]
    betas: Sequence[float]
    #: Landmarks where numbers of sites and noises are compared: noise for 100 sites and 500 landmarks takes long.
    landmarks_of_noise: int = 100
    rounds: int = 50
    faces: Sequence[str] = field(default=("t-SNE", "UMAP"))


FULL = Plan(
    maps={
        "MNIST": (40_000, (PLAIN, NOISY_IID.only("paper").by("t-SNE"), NOISY.only("paper"))),
        "Fashion-MNIST": (
            40_000,
            (PLAIN, NOISY_IID.only("paper").by("t-SNE"), NOISY.only("paper"), PRIVATE.by("t-SNE")),
        ),
        "COIL-20": (1440, (PLAIN,)),
        "mice": (1080, (PLAIN_IID, PLAIN, NOISY_IID, NOISY, PRIVATE)),
    },
    clusters={"MNIST": 2500, "COIL-20": 1440, "mice": 1080},
    convergence=("MNIST", 3000),
    swept=("MNIST", 3000),
    sites={"by class": (5, 10), "IID": (5, 10, 20, 50, 100)},
    landmarks=(20, 50, 100, 200, 500),
    betas=(0.5, 1.0, 2.0, 5.0),
)
QUICK = Plan(
    maps={
        "MNIST": (5000, (PLAIN,)),
        "mice": (1080, (PLAIN, NOISY.by("t-SNE"), PRIVATE.by("t-SNE"))),
    },
    clusters={"mice": 1080},
    convergence=("mice", 1080),
    swept=("mice", 1080),
    sites={"by class": (8,), "IID": (20,)},
    landmarks=(20, 100),
    betas=(1.0, 5.0),
)


def run(quick: bool = False) -> Results:
    """Run tables and figures; `quick` means fewer rows and settings."""
    return run_plan(QUICK if quick else FULL)


def run_plan(plan: Plan, processes: int | None = None) -> Results:
    """Run what a plan says, independent parts side by side on so many processes (default: one for each core)."""
    results = Results(
        "Federated t-SNE, UMAP and spectral clustering",
        "FedDL, Fed-tSNE, Fed-UMAP and Fed-SpeClust (Qiao, Ding and Fan, 2025) beside centralised maps, with the "
        "epsilon that each noisy row really has, and what the coordinator can rebuild of the rows.",
    )
    with jobs("maps and clusters", processes) as todo:
        pooled = {data: todo.submit(_centralised, data, n, plan.faces) for data, (n, _) in plan.maps.items()}
        others = todo.each(_other, [(part, plan) for part in OTHERS])
        lines = {}
        for data, (n, settings) in plan.maps.items():
            truth = pooled[data].result()[0]
            lines[data] = todo.each(
                _federated, [(data, n, truth, setting, plan.faces, plan.rounds) for setting in settings]
            )
        found: dict[str, Found] = {}
        for data, futures in lines.items():
            several = [pooled[data].result()[1], *(future.result() for future in futures)]
            found[data] = {face: [line for one in several for line in one.get(face, [])] for face in plan.faces}
            rows = LOADERS[data](plan.maps[data][0])
            results.parts.extend(map_tables(data, rows, found[data], plan.rounds))
            results.parts.append(map_pictures(rows, found[data]))
        results.parts.extend(future.result() for future in others)
    results.parts.append(words(found))
    return results


# The jobs: each loads its own rows, which are more to send than to read.


def _centralised(data: str, n: int, faces: Sequence[str]) -> tuple[NDArray[Any], Found]:
    return centralised(LOADERS[data](n), faces)


def _federated(data: str, n: int, truth: NDArray[Any], setting: Setting, faces: Sequence[str], rounds: int) -> Found:
    return federated(LOADERS[data](n), truth, setting, faces, rounds)


def _other(part: str, plan: Plan) -> Part:
    return OTHERS[part](plan)


def _by_sites(plan: Plan) -> Part:
    swept = LOADERS[plan.swept[0]](plan.swept[1]).with_landmarks(plan.landmarks_of_noise)
    return by_sites(swept, Pooled(swept.X), plan.sites, plan.rounds)


def _by_noise(plan: Plan) -> Part:
    swept = LOADERS[plan.swept[0]](plan.swept[1]).with_landmarks(plan.landmarks_of_noise)
    return by_noise(swept, Pooled(swept.X), plan.betas, plan.rounds)


def _by_landmarks(plan: Plan) -> Part:
    swept = LOADERS[plan.swept[0]](plan.swept[1])
    return by_landmarks(swept, Pooled(swept.X), plan.landmarks, plan.rounds)


def _convergence(plan: Plan) -> Part:
    rows = LOADERS[plan.convergence[0]](plan.convergence[1]).with_landmarks(plan.landmarks_of_noise)
    return convergence(rows, plan.rounds)


def _clusters(plan: Plan) -> Part:
    return clusters_table({name: LOADERS[name](n) for name, n in plan.clusters.items()}, plan.rounds)


#: Tables and figures that need no maps of whole sets, in the order of the page.
OTHERS: dict[str, Callable[[Plan], Part]] = {
    "sites": _by_sites,
    "noise": _by_noise,
    "landmarks": _by_landmarks,
    "convergence": _convergence,
    "clusters": _clusters,
}
