"""Run all benchmarks, or those named: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main() -> None:
    names = sys.argv[1:] or sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__")
    for name in names:
        print(f"\n== {name}")
        importlib.import_module(f"benchmarks.{name}").main()


main()
