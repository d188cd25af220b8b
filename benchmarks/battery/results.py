"""The results of the battery: kept as JSON, and read again."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.battery.ratio import LeftOut, Ratio

FOLDER = Path(__file__).parents[1]
STORED = FOLDER / "results.json"
PACKAGES = (
    *("fedspan", "numpy", "scipy", "scikit-learn", "torch", "openTSNE", "umap-learn", "pynndescent", "numba"),
    *("byzfl", "geom-median"),
)


@dataclass
class Results:
    """What a run of the battery has found, and where.

    Attributes
    ----------
    machine, versions : dict
    ratios : dict from module names to lists of Ratio
    left_out : list of LeftOut
        Comparisons that were not made, and why.
    scaling : list of dict
        Points of the curves: see `benchmarks.battery.scaling`.
    """

    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, list[Ratio]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    scaling: list[dict[str, Any]] = field(default_factory=list)

    def save(self, path: Path | None = None) -> None:
        """Write them, by default where they are stored; ratios to four digits, which is more than they are known to."""
        content = asdict(self)
        for ratio in (ratio for found in content["ratios"].values() for ratio in found):
            ratio["turns"] = [_rounded(turn) for turn in ratio["turns"]]
            ratio["ours"], ratio["theirs"] = _rounded(ratio["ours"]), _rounded(ratio["theirs"])
            ratio["clock"] = ratio["clock"] and [_rounded(seconds) for seconds in ratio["clock"]]
            ratio["quality"] = {name: [round(a, 4), round(b, 4)] for name, (a, b) in ratio["quality"].items()}
        (path or STORED).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> Results:
        """Read what `save` has written."""
        content = json.loads((path or STORED).read_text(encoding="utf-8"))
        content["ratios"] = {name: [_ratio(item) for item in found] for name, found in content["ratios"].items()}
        content["left_out"] = [LeftOut(**item) for item in content["left_out"]]
        return cls(**content)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _ratio(item: dict[str, Any]) -> Ratio:
    quality = {name: (a, b) for name, (a, b) in item["quality"].items()}
    clock = item.get("clock") and tuple(item["clock"])
    return Ratio(**{**item, "turns": tuple(item["turns"]), "quality": quality, "clock": clock})


def machine() -> dict[str, str]:
    """Say on what kind of machine this runs; no names."""
    model = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.is_file():
        lines = [line for line in about.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of everybody who takes part."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
