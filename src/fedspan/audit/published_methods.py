"""Cards of published methods: what a coordinator rebuilds from a method's own messages, beside a repaired form.

A method is typed again from its description, run on public images, and attacked with nothing but what its coordinator
has. The repaired form makes a map of the same rows by sums alone (``FedTSNE(share="centers")``), and all its messages
are attacked and searched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.audit.audit_run import audit
from fedspan.audit.leak_card import LeakCard, LeakEntry
from fedspan.audit.received import Received
from fedspan.datasets import data_folder, load_digits, load_mnist
from fedspan.engines.local.embedded import federate
from fedspan.errors import InputError
from fedspan.landmarks.feddl import feddl
from fedspan.linalg.kernels.gaussian_kernel import squared_distances
from fedspan.maps.tsne import FedTSNE

#: A row is rebuilt if it is off by no more than this part of the data's range.
_REBUILT = 1e-6
_ROWS = 500


@dataclass(frozen=True)
class Images:
    """Images as rows of numbers in [0, 1]: those of the sites, with their classes, and others for public anchors."""

    name: str
    rows: Matrix
    classes: NDArray[Any]
    others: Matrix


def image_sets(seed: int = 0) -> list[Images]:
    """Return scikit-learn's digits, and MNIST where the data folder has it; 500 rows of each at the sites."""
    loaded = [("digits", load_digits(), 16.0)]
    if (data_folder() / "mnist.npz").is_file():
        loaded.append(("MNIST", load_mnist(), 255.0))
    found = []
    for name, data, white in loaded:
        order = np.random.default_rng(seed).permutation(len(data.data))
        own, others = order[:_ROWS], order[_ROWS : _ROWS + 1000]
        found.append(Images(name, data.data[own] / white, data.target[own], data.data[others] / white))
    return found


def _fed_tsne(images: Images) -> tuple[str, Received]:
    """Fed-tSNE: landmarks learned by FedDL, to which every row's distances are posted."""
    m = images.rows.shape[1]
    n_landmarks = 100 if m < 100 else 500
    fed = federate(images.rows, sites=images.classes)
    landmarks = fed.run(feddl, n_landmarks=n_landmarks, rounds=50).points
    setting = f"{n_landmarks} landmarks, 50 rounds of FedDL, one class a site, distances in double precision"
    return setting, Received("", "", landmarks=landmarks, distances=_distances(images.rows, landmarks), exact=True)


def _sense(images: Images) -> tuple[str, Received]:
    """SENSE, with all anchors: squared distances to one anchor fewer than columns, which the server knows."""
    anchors = images.others[: images.rows.shape[1] - 1]
    spanned = np.linalg.matrix_rank(anchors - anchors.mean(axis=0))
    setting = f"{len(anchors)} anchors, which are other images, and span {spanned} of {anchors.shape[1]} dimensions"
    return setting, Received("", "", landmarks=anchors, distances=_distances(images.rows, anchors), exact=True)


def _distances(rows: Matrix, landmarks: Matrix) -> Matrix:
    return np.asarray(np.sqrt(squared_distances(rows, landmarks)))


#: The methods: their titles, and what runs them and returns the setting and what the coordinator has.
METHODS: dict[str, tuple[str, Callable[[Images], tuple[str, Received]]]] = {
    "fed-tsne": ("Fed-tSNE (posted distances to FedDL's landmarks)", _fed_tsne),
    "sense": ("SENSE (posted squared distances to public anchors)", _sense),
}


def method_card(method: str, images: Images) -> LeakCard:
    """Attack a published method on images, and return its card, with that of the repaired form beside it.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    images : Images
        See `image_sets`.
    """
    if method not in METHODS:
        raise InputError(f"no card for {method!r}: choose one of {', '.join(sorted(METHODS))}")
    title, run = METHODS[method]
    setting, received = run(images)
    n, m = images.rows.shape
    where = f"{images.name}, {n} rows of {m} columns, {setting}"
    card = audit(replace(received, what=title, where=where), truth=images.rows, bounds=(0.0, 1.0))
    repaired = _repaired(images)
    entries = tuple(_counted(entry, images.rows) for entry in card.entries)
    remarks = (
        f"Repaired form: {repaired.what}, of the same rows. No message of it is about single rows.",
        *repaired.remarks,
    )
    return replace(card, entries=entries, remarks=remarks, beside=(repaired,))


def _repaired(images: Images) -> LeakCard:
    """Return the card of a map of centres of the same rows, from the journal of its run."""
    with tempfile.TemporaryDirectory() as folder:
        with federate(images.rows, sites=images.classes, run_dir=folder) as fed:
            model = FedTSNE(share="centers", random_state=0).fit(fed)
        truth = {str(site): images.rows[images.classes == site] for site in np.unique(images.classes)}
        card = audit(folder, truth=truth, bounds=(0.0, 1.0), model=model)
    rows = np.concatenate([truth[site] for site in sorted(truth)])
    return replace(card, entries=tuple(_counted(entry, rows) for entry in card.entries))


def _counted(entry: LeakEntry, rows: Matrix) -> LeakEntry:
    """Add the share of rows that are rebuilt to 1e-6; where rebuilt rows have no order, by the nearest of them."""
    if entry.rebuilt is None or not len(entry.rebuilt):
        return entry
    if entry.rebuilt.shape == rows.shape:
        apart = np.linalg.norm(entry.rebuilt - rows, axis=1)
    else:
        apart = np.sqrt(squared_distances(rows, entry.rebuilt).min(axis=1))
    return replace(entry, measures={**entry.measures, "rebuilt": float(np.mean(apart <= _REBUILT))})
