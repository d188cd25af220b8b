"""What the numbers of this very run say, in words."""

from __future__ import annotations

from collections.abc import Mapping

from fedspan.papers.fed_tsne.map_tables_paper import Found, Line, differences
from fedspan.papers.fed_tsne.variants_paper import epsilon_words
from fedspan.papers.results_paper import Words
from fedspan.privacy import PaperNoise


def words(found: Mapping[str, Found]) -> Words:
    """Return the paragraphs."""
    said = []
    for data, faces in found.items():
        for face in faces:
            ours, theirs = (differences(faces, face, method) for method in ("coordinates", "paper"))
            said.append(
                f"{data}, {face}: below the centralised map by {ours[0]:.3f} (CA10) and {ours[1]:.3f} (NPA10) with "
                f"landmark coordinates, by {theirs[0]:.3f} and {theirs[1]:.3f} with the paper's form."
            )
    lines = [line for faces in found.values() for several in faces.values() for line in several]
    noisy = [line for line in lines if line.setting is not None and isinstance(line.setting.privacy, PaperNoise)]
    return Words(
        "What the numbers say",
        [
            *said,
            _noise_words(sorted({epsilon_words(line.epsilon): line.epsilon for line in noisy}.values())),
            "The leak. Noise on gradients covers the landmarks alone. The distances that are posted next come from the "
            f"rows as they are: {_rebuilt(lines)} A map by posted distances is not private against the coordinator.",
        ],
    )


def _rebuilt(lines: list[Line]) -> str:
    leaks = [line.leak.relative_error for line in lines if line.leak is not None]
    return f"rebuilt rows have a relative error of {min(leaks):.2g} to {max(leaks):.2g} (1: nothing is known)."


def _noise_words(epsilons: list[float]) -> str:
    if not epsilons:
        return "No map here has the paper's noise."
    found = " to ".join(dict.fromkeys(epsilon_words(value) for value in (epsilons[0], epsilons[-1])))
    return (
        "Noise. The paper's Fed-tSNE+ and Fed-UMAP+ add noise as large as the gradient's own spread. In these tables "
        f"its epsilon is {found}, where 1 is strong protection and 100 none; and the size of the noise is taken from "
        "the rows, so strictly there is no guarantee at all."
    )
