"""Beyond the paper: its 39 numeric columns of UNSW-NB15 with the three text columns that it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import track

from fedspan import FedPCADetector, FedTabularEncoder
from fedspan.datasets import anomaly_split, load_unsw_nb15, split_blocks
from fedspan.engines.local.embedded import federate
from fedspan.papers.fedpca.detection_measures_paper import Detection, detection
from fedspan.papers.fedpca.detection_tables_paper import COLUMNS, detection_row
from fedspan.papers.fedpca.methods_paper import QUANTILE
from fedspan.papers.fedpca.traffic_paper import CUT_BY, SITES, SIZES
from fedspan.papers.results_paper import Table, counted

TEXT = ("proto", "service", "state")
RANK = 30


def encoded_table(seeds: Sequence[int]) -> Table:
    """Return the detection table of encoded rows, for each score and two ranks."""
    import pandas as pd

    unsw = load_unsw_nb15(categorical=True)
    frame = pd.DataFrame(unsw.data, columns=unsw.feature_names).assign(**{name: unsw[name] for name in TEXT})
    found: dict[str, list[Detection]] = {}
    width = 0
    for seed in track(seeds, description="encoded", transient=True):
        split = anomaly_split(unsw, seed=seed, **SIZES["UNSW-NB15"])
        train, test = frame.iloc[split.train_rows], frame.iloc[split.test_rows]
        key = unsw.data[split.train_rows, list(unsw.feature_names).index(CUT_BY["UNSW-NB15"])]
        fed = federate(train, sites=split_blocks(key, SITES), seed=seed)
        encoder = FedTabularEncoder().fit(fed)
        rows, encoded = encoder.transform(test), encoder.transform(fed)
        width = rows.shape[1]
        for rank in (10, RANK):
            for score in ("residual", "mahalanobis", "combined"):
                if score == "mahalanobis" and rank != RANK:
                    continue  # it does not depend on the rank
                model = FedPCADetector(rank, score=score, quantile=QUANTILE, scale=False).fit(encoded)
                name = score if score == "mahalanobis" else f"{score}, k = {rank}"
                measured = detection(split.y_test, -model.score_samples(rows), -model.offset_)
                found.setdefault(name, []).append(measured)
    return Table(
        f"UNSW-NB15 with {', '.join(TEXT)}: detection, FedTabularEncoder with its defaults, {width} columns",
        COLUMNS[:-2],
        [detection_row(name, several) for name, several in found.items()],
        f"Mean over {counted(seeds)}, random split. The paper has no such table. Stars as above; thresholds "
        f"without one are the {QUANTILE} quantile of the training scores. Solver: exact.",
    )
