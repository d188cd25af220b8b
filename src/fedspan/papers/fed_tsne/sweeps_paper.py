"""What changes with the number of sites (Tables 3 and 4), of landmarks, and with the noise: by t-SNE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedspan.papers.fed_tsne.fed_tsne_numbers_paper import SITES, beside
from fedspan.papers.fed_tsne.layouts_paper import Pooled
from fedspan.papers.fed_tsne.leak_paper import HEADS, leak
from fedspan.papers.fed_tsne.map_measures_paper import Quality, quality
from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.papers.fed_tsne.variants_paper import DELTA, GUARANTEED, PAPER_NOISE, Learned, epsilon_words, learned
from fedspan.papers.results_paper import Table
from fedspan.privacy import PaperNoise
from fedspan.privacy.mechanisms import Mechanism

_SHOWN = ("CA10", "NPA10", "NMI")


def by_sites(rows: Rows, pooled: Pooled, counts: Mapping[str, Sequence[int]], rounds: int = 50) -> Table:
    """Return Tables 3 and 4: the paper's form by numbers of sites, split ``"by class"`` or ``"IID"``."""
    lines = []
    theirs = SITES if rows.name == "MNIST" else {}
    compared = " In brackets: the paper's values, of 40,000 rows (Tables 3 and 4)." if theirs else ""
    todo = [(split, n, noise) for split, ns in counts.items() for n in ns for noise in (False, True)]
    for split, n, noise in todo:
        sites = rows.by_class(n) if split == "by class" else rows.iid(n)
        found = learned(rows, sites, PAPER_NOISE if noise else None, rounds=rounds)
        map_ = _quality(found, "paper", pooled)
        nmi, kept = theirs.get((split, noise), {}).get(n, (None, None))
        cells = [beside(map_.accuracy[1], None), beside(map_.preserved[1], kept), beside(map_.nmi, nmi)]
        lines.append([f"{n} sites, {split}{', noise' if noise else ''}", *cells, epsilon_words(found.epsilon)])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by number of sites, the paper's form",
        ["", *_SHOWN, "epsilon"],
        lines,
        f"{rows.n_landmarks} landmarks, {rounds} rounds, seed 0.{compared} Noise: as in the paper; its epsilon (worst "
        f"site, delta {DELTA:g}) is that of the landmarks alone.",
    )


def by_landmarks(rows: Rows, pooled: Pooled, counts: Sequence[int], rounds: int = 50) -> Table:
    """Return use against leak by number of landmarks, for both forms of distance."""
    lines = []
    for n_y in counts:
        found = learned(rows, rows.by_class(), n_landmarks=n_y, rounds=rounds)
        ours, theirs = (_quality(found, method, pooled) for method in ("coordinates", "paper"))
        cells = [beside(value, None) for q in (ours, theirs) for value in (q.accuracy[1], q.preserved[1])]
        lines.append([f"{n_y}", *cells, f"{found.model.mmd2_:.1e}", *leak(found).cells()])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by number of landmarks",
        ["landmarks", "ours: CA10", "NPA10", "paper's form: CA10", "NPA10", "MMD^2", *HEADS],
        lines,
        f"One class a site, {rounds} rounds, seed 0, no noise. Leak: rows rebuilt from the posted distances.",
    )


def by_noise(rows: Rows, pooled: Pooled, betas: Sequence[float], rounds: int = 50) -> Table:
    """Return both forms by the size of the paper's noise, one class a site."""
    lines = []
    kinds: dict[str, Mechanism | None] = {f"beta {beta:g}": PaperNoise(beta, DELTA) if beta else None for beta in betas}
    kinds["guaranteed"] = GUARANTEED
    for name, privacy in kinds.items():
        found = learned(rows, rows.by_class(), privacy, rounds=rounds)
        ours, theirs = (_quality(found, method, pooled) for method in ("coordinates", "paper"))
        cells = [beside(value, None) for q in (ours, theirs) for value in (q.accuracy[1], q.preserved[1])]
        lines.append([name, *cells, epsilon_words(found.epsilon), *leak(found).cells()])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by noise",
        ["", "ours: CA10", "NPA10", "paper's form: CA10", "NPA10", "epsilon", *HEADS],
        lines,
        f"{rows.n_landmarks} landmarks, one class a site, {rounds} rounds, seed 0. The noise's deviation is beta "
        f"times that of a gradient's entries; epsilon (worst site, delta {DELTA:g}) is what noise of this size would "
        "have, for the landmarks alone: the posted distances come from the rows as they are.",
    )


def _quality(found: Learned, method: str, pooled: Pooled) -> Quality:
    return quality(found.maps(method, ["t-SNE"])["t-SNE"], found.rows.y, pooled.indices)
