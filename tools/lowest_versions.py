"""Prints the lowest version of every package that pyproject.toml declares, as constraints for pip.

``make test-lowest`` installs these, and runs the quick tests with them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
#: The extras that the quick tests use.
EXTRAS = ("tables", "secure", "privacy", "maps", "excel", "sql", "mysql", "mssql", "atlas")


def lowest(pyproject: Path = PYPROJECT) -> list[str]:
    """Return a line ``name==version`` for each package of the core and of `EXTRAS`."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    found = (re.fullmatch(r"([\w.-]+)>=([\w.]+)", one) for one in wanted)
    return sorted({f"{one[1]}=={one[2]}" for one in found if one is not None})


if __name__ == "__main__":
    print("\n".join(lowest()))
