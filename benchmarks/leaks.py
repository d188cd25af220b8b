"""What the coordinator rebuilds from posted distances, and what fewer landmarks, rounding or noise cost and save.

Sites of one class each, 50 rounds, seed 0; of MNIST and Fashion-MNIST 3000 rows (seed 0), and 5000 others as public
rows. PSNR is of values clipped to [0, 1]. Sets other than digits are read from the data folder (FEDSPAN_DATA), and left
out where they are not there. The totals are of digits at six sites under a secure sum, and of the same with posted
distances. ``FEDSPAN_LEAKS=curve,axes,digits,rounding,rotation,noise,totals`` chooses tables.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan import datasets
from fedspan.audit import audit, fill, psnr, reidentified, relative_error, trilaterate, unrotate
from fedspan.audit.received import Received
from fedspan.audit.sums_attack import WORK
from fedspan.errors import DataMissingError
from fedspan.landmarks.feddl import Landmarks, feddl
from fedspan.landmarks.landmark_distances import landmark_distances
from fedspan.landmarks.private_feddl import private_feddl
from fedspan.linalg import nearest
from fedspan.linalg.kernels.landmark_form import landmark_form
from fedspan.privacy import GaussianGradient, PaperNoise

UNIT = (0.0, 1.0)
TOTALS_ALONE, TOTALS_AND_DISTANCES = (18, 30, 40, 50, 100), (60, 300)
CURVE = (5, 10, 20, 50, 100, 200, 500)


def main() -> dict[str, float]:
    tables = {"digits": _digits, "curve": _curve, "rounding": _rounding, "rotation": _rotation, "noise": _noise}
    tables |= {"totals": _totals, "axes": _axes}
    chosen = os.environ.get("FEDSPAN_LEAKS", ",".join(tables)).split(",")
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        for name in chosen:
            print(f"-- {name}")
            try:
                figures |= tables[name]()
            except DataMissingError as missing:
                print(f"left out: {missing}")
    return figures


class _Images:
    """Rows in site order, their labels, their true neighbours, and public rows; landmarks are learned once."""

    def __init__(self, load: Callable[..., datasets.Bunch], rows: int = 3000, public: int = 5000) -> None:
        data = load()
        order = np.random.default_rng(0).permutation(len(data.data))
        mine, others = order[:rows], order[rows : rows + public]
        mine = mine[np.argsort(data.target[mine].astype(str), kind="stable")]
        self.X, self.y = data.data[mine] / 255.0, np.unique(data.target[mine], return_inverse=True)[1]
        self.public, self.public_y = data.data[others] / 255.0, np.unique(data.target[others], return_inverse=True)[1]
        self.fed = fs.federate(self.X, sites=data.target[mine].astype(str))
        self.neighbors = _neighbors(self.X)
        self._found: dict[tuple[int, int], tuple[Landmarks, np.ndarray]] = {}

    def posted(self, n_y: int, rounds: int = 50) -> tuple[Landmarks, np.ndarray]:
        if (n_y, rounds) not in self._found:
            found = self.fed.run(feddl, n_landmarks=n_y, rounds=rounds, n_frequencies=0)
            self._found[n_y, rounds] = found, self.distances(found)
        return self._found[n_y, rounds]

    def distances(self, found: Landmarks) -> np.ndarray:
        return np.concatenate(list(self.fed.run(landmark_distances, landmarks=found).values())) * found.scale

    def use(self, found: Landmarks, B: np.ndarray, residuals: bool | None = None) -> tuple[float, float]:
        """Return recall of the ten true neighbours, and the accuracy of ten neighbours by landmark coordinates."""
        form = landmark_form((found.points - found.centre) / found.scale, "coordinates", residuals)
        mine = nearest(form.of(B / found.scale), 10)[0]
        return self.recall(mine), self.accuracy(mine)

    def recall(self, neighbors: np.ndarray) -> float:
        return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(neighbors, self.neighbors, strict=True)]) / 10)

    def accuracy(self, neighbors: np.ndarray) -> float:
        votes = np.zeros((len(self.y), self.y.max() + 1))
        np.add.at(votes, (np.arange(len(self.y))[:, None], self.y[neighbors]), 1)
        return float(np.mean(votes.argmax(axis=1) == self.y))


_kept: dict[str, _Images] = {}


def _images(name: str) -> _Images:
    if name not in _kept:
        _kept[name] = _Images(datasets.load_mnist if name == "MNIST" else datasets.load_fashion_mnist)
    return _kept[name]


def _neighbors(X: np.ndarray) -> np.ndarray:
    D = X - X.mean(axis=0)
    squares = np.vecdot(D, D)
    apart = squares[:, None] + squares - 2 * D @ D.T
    np.fill_diagonal(apart, np.inf)
    return np.argpartition(apart, 10, axis=1)[:, :10]


def _digits() -> dict[str, float]:
    digits = datasets.load_digits()
    X, sites = digits.data.astype(float), digits.target.astype(str)
    fed = fs.federate(X, sites=sites)
    found = fed.run(feddl, n_landmarks=100)
    truth = X[np.argsort(sites, kind="stable")]
    figures = {}
    for precision in ("double", "single"):
        B = np.concatenate(list(fed.run(landmark_distances, landmarks=found, precision=precision).values()))
        B = B * found.scale
        kinds = (
            {precision: B}
            if precision == "double"
            else {precision: B, "half": B.astype(np.float16), "8 bits": _rounded(B, 8)}
        )
        for name, seen in kinds.items():
            rows = trilaterate(seen, found.points).rows
            error, exact = relative_error(rows, truth), np.mean(np.rint(rows) == truth)
            print(f"digits, n_y=100, {name:7}: relative error {error:.1e}, grey values exact when rounded {exact:.4f}")
            figures[f"digits: relative error, {name}"] = error
    print("(aim: 1e-8 in double precision)")
    return figures


def _curve() -> dict[str, float]:
    data = _images("MNIST")
    figures = {"raw accuracy": data.accuracy(data.neighbors)}
    mean = np.tile(data.X.mean(axis=0), (len(data.X), 1))
    base, raw = psnr(mean, data.X, UNIT), figures["raw accuracy"]
    print(f"MNIST {len(data.X)}, mean image {base:.1f} dB; accuracy on raw rows {raw:.3f}")
    print("n_y   relative error  re-identified  PSNR  with public rows  recall10  accuracy")
    for n_y, rounds in [(n_y, 50) for n_y in CURVE] + [(500, 0)]:
        found, B = data.posted(n_y, rounds)
        rebuilt = trilaterate(B, found.points)
        error, named = relative_error(rebuilt.rows, data.X), reidentified(B, data.X, cdist(data.X, found.points))
        plain, filled = psnr(rebuilt.rows, data.X, UNIT), psnr(fill(rebuilt, data.public), data.X, UNIT)
        recall, accuracy = data.use(found, B, None if rounds else False)
        said = "" if rounds else "  (landmarks that learned nothing: rounds=0)"
        print(
            f"{n_y:4}  {error:14.3f}  {named:13.3f}  {plain:4.1f}  {filled:16.1f}  {recall:8.3f}  {accuracy:8.3f}{said}"
        )
        figures |= {
            f"MNIST n_y={n_y} rounds={rounds}: PSNR": plain,
            f"MNIST n_y={n_y} rounds={rounds}: recall10": recall,
        }
    print("(aim: 34 dB at n_y=500)")
    return figures


def _axes() -> dict[str, float]:
    """Compare what maps along principal axes give away with the paper's form, by the audit of what was posted."""
    data, figures = _images("MNIST"), {}
    paper = {"n_landmarks": 500, "rounds": 50, "reduce": None}
    auto = {"n_landmarks": "auto", "rounds": "auto"}
    print("MNIST 3000: relative error, re-identified, PSNR, with public rows, recall10, MB moved")
    for name, settings in {
        "the paper's form": paper,
        "reduce='auto'": {**auto, "reduce": "auto"},
        "reduce=20": {**auto, "reduce": 20},
    }.items():
        with warnings.catch_warnings(), data.fed.begin("leaks", seed=0) as fed:
            warnings.simplefilter("ignore")
            found = feddl(fed, posting=True, **settings)
            B = np.concatenate(list(landmark_distances(fed, landmarks=found).values())) * found.scale
            moved = (fed.record.bytes_up + fed.record.bytes_down) / 1e6
        received = Received("map", name, landmarks=found.points, distances=B, row_sites=np.arange(len(B)))
        entries = audit(received, truth=data.X, public=data.public, bounds=UNIT).entries
        measures, filled = entries[0].measures, entries[1].measures["psnr"]
        recall = data.use(found, B, None)[0]
        error, named, plain = (measures[key] for key in ("relative_error", "reidentified", "psnr"))
        print(f"{name:17} {error:.3f}  {named:.3f}  {plain:.1f}  {filled:.1f}  {recall:.3f}  {moved:.0f}")
        figures |= {f"MNIST, {name}: relative error": error, f"MNIST, {name}: PSNR": plain}
    return figures


def _rounded(B: np.ndarray, bits: int) -> np.ndarray:
    low, high = float(B.min()), float(B.max())
    steps = 2**bits - 1
    return np.rint((B - low) / (high - low) * steps) / steps * (high - low) + low


def _rounding() -> dict[str, float]:
    data = _images("MNIST")
    found, B = data.posted(500)
    rng = np.random.default_rng(0)
    kinds = {
        "as posted": B,
        "half precision": B.astype(np.float16),
        "8 bits": _rounded(B, 8),
        "4 bits": _rounded(B, 4),
        "3 bits": _rounded(B, 3),
        "noise sd .1": B + 0.1 * rng.standard_normal(B.shape),
        "noise sd 1": B + rng.standard_normal(B.shape),
    }
    figures = {}
    print("MNIST 3000, n_y=500: PSNR by plain inversion, with the cut, with the best cut (found by the truth);")
    print("recall10 of the map's own coordinates, and of the rows rebuilt with the cut")

    for name, given in kinds.items():
        seen = np.abs(np.asarray(given, dtype=np.float64))
        plain, ours = _rows(seen, found, 0.0), _rows(seen, found, "auto")
        best = max(psnr(_rows(seen, found, cut), data.X, UNIT) for cut in (0.0, *np.geomspace(1e-4, 1, 33)))
        first, second = psnr(plain, data.X, UNIT), psnr(ours, data.X, UNIT)
        recall = data.use(found, seen)[0], data.recall(_neighbors(ours))
        print(f"{name:15}  {first:5.1f}  {second:5.1f}  {best:5.1f}  |  {recall[0]:.3f}  {recall[1]:.3f}")
        figures |= {f"{name}: PSNR, plain": first, f"{name}: PSNR, with the cut": second}
    return figures


def _rows(B: np.ndarray, found: Landmarks, cut: float | str) -> np.ndarray:
    return trilaterate(B, found.points, cut=cut).rows


def _rotation() -> dict[str, float]:
    figures = {}
    for name in ("MNIST", "Fashion"):
        data = _images(name)
        found, B = data.posted(500)
        rebuilt = trilaterate(B, found.points).rows
        print(f"{name}: trilateration {psnr(rebuilt, data.X, UNIT):.1f} dB")
        for key in (1, 2):
            # What the coordinator would hold had the sites turned their rows by this key.
            rng = np.random.default_rng(key)
            turned = rebuilt @ np.linalg.qr(rng.normal(size=(784, 784)))[0] + rng.normal(size=784)
            rows = unrotate(turned, data.public)
            before = psnr(turned, data.X, UNIT)
            after, named = psnr(rows, data.X, UNIT), reidentified(rows, data.X)
            labels = float(np.mean(data.public_y[_nearest(rows, data.public)] == data.y))
            remark = f"re-identified {named:.3f}, labels guessed {labels:.3f}"
            print(f"{name}, key {key}: turned {before:.1f} dB, undone {after:.1f} dB, {remark}")
            figures |= {f"{name} key {key}: PSNR, rotation undone": after, f"{name} key {key}: re-identified": named}
    print("(aim: MNIST 20 dB, .99 re-identified)")
    return figures


def _noise() -> dict[str, float]:
    """Print what noise on FedDL's gradients does to what is rebuilt: the distances to these landmarks have none."""
    data = _images("MNIST")
    figures = {}
    print("MNIST 3000, n_y=500, noise on gradients: PSNR of rebuilt rows, with public rows, re-identified, recall10")
    for privacy in (None, GaussianGradient(8.0, 1e-5), GaussianGradient(1.0, 1e-5), PaperNoise(1.0)):
        found, B = data.posted(500) if privacy is None else (None, None)
        if found is None or B is None:
            found = data.fed.run(private_feddl, privacy=privacy, n_landmarks=500, n_frequencies=0)
            B = data.distances(found)
        rebuilt = trilaterate(B, found.points)
        plain, filled = psnr(rebuilt.rows, data.X, UNIT), psnr(fill(rebuilt, data.public), data.X, UNIT)
        named, recall = reidentified(rebuilt.rows, data.X), data.use(found, B)[0]
        name = "none" if privacy is None else repr(privacy)
        print(f"{name:75}  {plain:5.1f}  {filled:5.1f}  {named:.3f}  {recall:.3f}", flush=True)
        figures |= {f"noise on gradients, {name}: PSNR": plain, f"noise on gradients, {name}: recall10": recall}
    return figures


def _totals() -> dict[str, float]:
    """Print what FedDL's totals alone give away of few rows, and what they add to posted distances."""
    figures = {}
    print(f"digits, six sites, 20 landmarks, 50 rounds, {WORK:.0e} multiplications: rows, what, relative error, PSNR,")
    print("share of rows whose grey values are all exact when rounded, misfit (rows matched with the true ones)")
    for n in TOTALS_ALONE:
        figures |= _attacked_totals(n, False)
    for n in TOTALS_AND_DISTANCES:
        figures |= _attacked_totals(n, True)
    return figures


def _attacked_totals(n: int, posted: bool) -> dict[str, float]:
    X = datasets.load_digits().data.astype(float)
    X = X[np.random.default_rng(5).choice(len(X), n, replace=False)]
    sites = np.arange(n) % 6
    model = (
        fs.FedSpectralClustering(2, n_landmarks=20, random_state=0) if posted else fs.FedLandmarks(20, random_state=0)
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that totals of few rows are the rows
        policy = fs.Policy(secure_sum=not posted)
        with fs.federate(X, sites=sites, run_dir=folder, policy=policy) as fed:
            model.fit(fed)
        truth = {str(site): X[sites == site] for site in range(6)}
        # In the order of the table totals are matched with the truth; posted rows come in site order.
        card = audit(folder, truth=truth if posted else X, landmarks=model.landmarks_, bounds=(0, 16))
    figures = {}
    for entry in card.entries:
        if entry.attack != "sums of single sites":
            error, decibels = entry.measures["relative_error"], entry.measures["psnr"]
            true = np.concatenate([truth[name] for name in sorted(truth)]) if posted else X
            exact = float(np.mean(np.all(np.rint(entry.rebuilt) == true, axis=1)))
            misfit = entry.facts["misfit"]
            print(f"{n:4}  {entry.attack:30}  {error:8.2g}  {decibels:6.1f}  {exact:.2f}  {misfit:.1e}", flush=True)
            figures[f"{n} rows, {entry.attack}: PSNR"] = decibels
    return figures


def _nearest(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    return (np.vecdot(among, among) - 2 * rows @ among.T).argmin(axis=1)


if __name__ == "__main__":
    main()
