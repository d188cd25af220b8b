"""What the coordinator can rebuild of the rows from the distances that were posted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.audit import psnr, relative_error, trilaterate
from fedspan.papers.fed_tsne.variants_paper import Learned

#: Rows that are rebuilt.
SAMPLE = 1000


@dataclass(frozen=True)
class Leak:
    """How near rebuilt rows come: relative error (1: no better than the mean row), and PSNR of images in dB."""

    relative_error: float
    psnr: float | None

    def cells(self) -> list[str]:
        """Return both as text."""
        return [f"{self.relative_error:.2g}", "" if self.psnr is None else f"{self.psnr:.1f} dB"]


#: The heads of `Leak.cells`.
HEADS = ("leak: error", "PSNR")


def leak(found: Learned) -> Leak:
    """Rebuild the first 1000 rows by trilateration, and compare them with the true ones."""
    truth = np.asarray(found.rows.X[:SAMPLE], dtype=np.float64)
    rebuilt = trilaterate(found.B[:SAMPLE], found.model.landmarks_).rows
    bounds = found.rows.bounds
    return Leak(relative_error(rebuilt, truth), None if bounds is None else psnr(rebuilt, truth, bounds))
