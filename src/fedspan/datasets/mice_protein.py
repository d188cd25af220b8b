"""Mice protein expression: 77 protein levels of 72 mice."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedspan.checks import one_of
from fedspan.datasets.bunch import Bunch, Source, dataset
from fedspan.datasets.data_folder import check_rows, find_file, read_text, reading

MICE_FILE = "mice_protein.csv.gz"
ROWS = 1_080

_PROTEINS = """
    DYRK1A ITSN1 BDNF NR1 NR2A pAKT pBRAF pCAMKII pCREB pELK pERK pJNK PKCA pMEK pNR1 pNR2A pNR2B pPKCAB
    pRSK AKT BRAF CAMKII CREB ELK ERK GSK3B JNK MEK TRKA RSK APP Bcatenin SOD1 MTOR P38 pMTOR DSCR1 AMPKA
    NR2B pNUMB RAPTOR TIAM1 pP70S6 NUMB P70S6 pGSK3B pPKCG CDK5 S6 ADARB1 AcetylH3K9 RRP1 BAX ARC ERBB4
    nNOS Tau GFAP GluR3 GluR4 IL1B P3525 pCASP9 PSD95 SNCA Ubiquitin pGSK3B_Tyr216 SHH BAD BCL2 pS6 pCFOS
    SYP H3AcK18 EGR1 H3MeK4 CaNA
"""
PROTEINS = tuple(f"{name}_N" for name in _PROTEINS.split())

_SOURCE = Source(
    name="Mice Protein Expression",
    publisher="UCI Machine Learning Repository, C. Higuera, K. J. Gardiner and K. J. Cios (PLoS ONE 2015)",
    where="the Mice Protein Expression page of the UCI Machine Learning Repository "
    "(its table as CSV, compressed with gzip)",
    terms="CC BY 4.0 (check with the publisher before redistribution).",
)
_ABOUT = (
    "Levels of 77 proteins in eight classes of mice (control or trisomic, treated or not, stimulated or "
    "not). The 15 rows of a mouse repeat one measurement: split by mouse_id, never within a mouse. The file "
    "has 1,080 rows and 1,396 missing values in 49 columns; 552 rows are complete."
)


def load_mice_protein(*, missing: Literal["keep", "drop", "mean"] = "keep") -> Bunch:
    """Load mice protein expression from ``mice_protein.csv.gz`` in the data folder.

    Parameters
    ----------
    missing : {"keep", "drop", "mean"}, default="keep"
        Leave missing values as NaN; drop the rows that have one (552 rows stay); or put the column's mean
        there. The mean is over all rows, test rows and other sites included.

    Returns
    -------
    Bunch
        ``data`` (1080, 77) or (552, 77) float64; ``target`` (n,), one of eight classes; ``mouse_id`` (n,),
        the mouse, for use as groups or sites; ``genotype``, ``treatment``, ``behavior`` (n,), as text.

    Raises
    ------
    DataMissingError
        If the file is not in the data folder.
    """
    one_of("missing", missing, ("keep", "drop", "mean"))
    path = find_file(MICE_FILE, _SOURCE)
    labels = ["MouseID", "class", "Genotype", "Treatment", "Behavior"]
    text = read_text(path, _SOURCE, [*labels, *PROTEINS])
    check_rows(len(text["class"]), ROWS, path, _SOURCE)
    with reading(path, _SOURCE):  # a cell that is not a number
        cells = np.column_stack([text[name] for name in PROTEINS])
        data = np.where(cells == "", "nan", cells).astype(np.float64)
    rows = ~np.isnan(data).any(axis=1) if missing == "drop" else np.ones(len(data), dtype=bool)
    if missing == "mean":
        data = np.where(np.isnan(data), np.nanmean(data, axis=0), data)
    classes, target = np.unique(text["class"], return_inverse=True)
    mouse = np.array([measurement.rpartition("_")[0] for measurement in text["MouseID"]])
    return dataset(
        _SOURCE,
        _ABOUT,
        data=data[rows],
        target=target[rows],
        feature_names=np.array(PROTEINS),
        target_names=classes,
        mouse_id=mouse[rows],
        genotype=text["Genotype"][rows],
        treatment=text["Treatment"][rows],
        behavior=text["Behavior"][rows],
    )
