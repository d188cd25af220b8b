"""Runs the comparisons: which there are, each in processes of its own, one thread each.

Where a process happens to have its memory moves a time by more than turns within it differ. So the turns of a module
are spread over three processes, or as many as its ``PROCESSES`` says, and the printed spread includes that.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.battery.ratio import LeftOut, Ratio
from benchmarks.battery.results import FOLDER, Results, machine, versions

PROCESSES = 3


def declared(folder: Path = FOLDER) -> dict[str, tuple[set[str], str]]:
    """Return of each benchmark which of ``compare`` and ``main`` it has, and the first line of its docstring.

    Nothing is imported: some need packages that are not there.
    """
    found = {}
    for path in sorted(folder.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} & {"compare", "main"}
        found[path.stem] = functions, (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def battery() -> list[str]:
    """Return the names of the modules that compare."""
    return [name for name, (functions, _) in declared().items() if "compare" in functions]


def comparisons(name: str) -> Iterator[Ratio | LeftOut]:
    """Run the comparisons of a module, with one thread. What needs a package that is not there says so.

    A part that is missing in a package that is there is an error, and not the same thing.
    """
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        with threadpool_limits(1):
            yield from module.compare()
    except ModuleNotFoundError as missing:
        if importlib.util.find_spec((missing.name or name).partition(".")[0]):
            raise
        yield LeftOut(name, f"{missing.name} is not installed")


def alone(name: str) -> Results:
    """Run the comparisons of a module in this process."""
    results = Results(machine(), versions())
    for found in comparisons(name):
        if isinstance(found, LeftOut):
            results.left_out.append(found)
        else:
            results.ratios.setdefault(name, []).append(found)
    return results


def run(names: Sequence[str], times: int = 1) -> Results:
    """Run the comparisons of `names`, each in processes of its own, and print what they find.

    With `times` as many processes as else, and so as many turns.
    """
    results = Results(machine(), versions())
    for name in names:
        print(f"\n== {name}", flush=True)
        parts = [_in_a_process(name) for _ in range(times * _processes(name))]
        results.left_out += parts[0].left_out
        results.ratios[name] = merged([part.ratios.get(name, []) for part in parts])
        for left_out in parts[0].left_out:
            print(f"left out: {left_out}")
        what = None
        for ratio in results.ratios[name]:
            if ratio.what != what:
                what = ratio.what
                print(what)
            print(ratio.line(), flush=True)
    return results


def merged(parts: Sequence[Sequence[Ratio]]) -> list[Ratio]:
    """Put the turns of the same comparisons in several processes together."""
    return [
        replace(
            same[0],
            turns=tuple(turn for ratio in same for turn in ratio.turns),
            ours=float(np.median([ratio.ours for ratio in same])),
            theirs=float(np.median([ratio.theirs for ratio in same])),
            clock=_medians([ratio.clock for ratio in same if ratio.clock]),
        )
        for same in zip(*parts, strict=True)
    ]


def _medians(clocks: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    if not clocks:
        return None
    ours, theirs = np.median(clocks, axis=0)
    return float(ours), float(theirs)


def _in_a_process(name: str) -> Results:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        subprocess.run([sys.executable, "-m", "benchmarks.battery", name, str(path)], check=True, cwd=FOLDER.parent)
        return Results.load(path)


def _processes(name: str) -> int:
    """Read the ``PROCESSES`` of a module, without importing it."""
    for node in ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["PROCESSES"]:
            return int(ast.literal_eval(node.value))
    return PROCESSES
