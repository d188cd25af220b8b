"""What the views of a federation share, and what each of them does to calls on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.federation.calls.call import Engine
from fedspan.federation.calls.corruption import Corruption
from fedspan.federation.calls.faults import FaultPlan
from fedspan.federation.policy import Policy
from fedspan.federation.record import RunRecord
from fedspan.federation.run import Observer, Run
from fedspan.federation.site.steps import dotted_name
from fedspan.federation.site.transforms import Lens
from fedspan.federation.versions import versions


@dataclass
class Root:
    """What all views of one federation share, whatever the run."""

    engine: Engine
    seed: int
    policy: Policy
    run_dir: Path | None
    observers: tuple[Observer, ...] = ()
    runs: int = 0
    open_run: Run | None = None  # of protocols that are called on the federation itself

    def new_run(
        self, what: str, settings: Mapping[str, Any], seed: int | None, observers: tuple[Observer, ...], view: View
    ) -> Run:
        """Begin a run with the next number, as `view` sees the sites."""
        record = RunRecord(
            what,
            dict(settings),
            self.runs,
            self.seed if seed is None else seed,
            tuple(self.engine.sites),
            versions=versions(),
            policy={field.name: repr(getattr(self.policy, field.name)) for field in fields(self.policy)},
            lenses=tuple(lens.name for lens in view.lenses),
            conditions=view.conditions(),
        )
        folder = None if self.run_dir is None else self.run_dir / f"run-{self.runs:03d}"
        run = Run(self.engine, record, folder, self.observers + observers)
        self.runs += 1
        return run

    def close(self) -> None:
        """Close the run of protocols that were called on the federation itself."""
        run, self.open_run = self.open_run, None
        if run is not None:
            run.leave()

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class View:
    """What one view of a federation does to calls on their way."""

    sites: tuple[str, ...]
    lenses: tuple[Lens, ...] = ()
    corruptions: tuple[Corruption, ...] = ()
    faults: tuple[FaultPlan, ...] = ()
    run: Run | None = None

    def conditions(self) -> str:
        """Say which attacks and faults the calls of this view suffer: a journal of other ones does not fit."""
        attacks = [f"{stable_text(one.attack)} at {sorted(one.sites)}" for one in self.corruptions]
        return "; ".join([*attacks, *map(repr, self.faults)])


def as_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as a journal's head keeps and compares them: arrays by their digest, functions by their name."""
    return {str(key): stable_text(value) for key, value in settings.items()}


def stable_text(value: Any) -> str:
    """Return text that is the same in every process: no addresses, and whole arrays by their digest."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape} {value.dtype} #{blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(stable_text, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{key}={stable_text(item)}' for key, item in value.items())})"
    text = repr(value)
    return text if " at 0x" not in text else dotted_name(value if hasattr(value, "__qualname__") else type(value))
