"""The rules by which a stranger finds a module: its name and those of its classes occur once, and no folder is long."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

HOUSE = Path(__file__).parents[1] / "src" / "fedspan"
#: What each room may have.
IN_EVERY_ROOM = {"__init__", "estimator"}
MOST_FILES = 16


def test_a_module_name_occurs_once():
    places = defaultdict(list)
    for path in sorted(HOUSE.rglob("*.py")):
        places[path.stem].append(path.relative_to(HOUSE).as_posix())
    assert len(places) > 400
    twice = [found for name, found in places.items() if len(found) > 1 and name not in IN_EVERY_ROOM]
    assert twice == [], "a module's name occurs once in src/fedspan: rename the new one after what it computes"


def test_a_public_class_name_occurs_once():
    places = defaultdict(list)
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(HOUSE).as_posix())
    assert len(places) > 400
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "a class name has one meaning in src/fedspan: rename the new one after what it holds"


def test_no_folder_is_long():
    numbers = {folder: len(list(folder.glob("*.py"))) for folder in HOUSE.rglob("*") if folder.is_dir()}
    long = sorted(str(folder.relative_to(HOUSE)) for folder, number in numbers.items() if number > MOST_FILES)
    assert long == [], f"a folder has at most {MOST_FILES} modules: group some in a folder, or in parts/"


def test_the_types_of_arrays_are_defined_once():
    """A gateway's modules stand alone on small devices, and import nothing of the house."""
    again = re.compile(r"^(Array|Floats|Matrix|Vector) = NDArray\[(Any|np\.float64)\]$", flags=re.MULTILINE)
    files = [path for path in HOUSE.rglob("*.py") if path.parent.name != "gateway" and path.name != "arrays.py"]
    found = [path.relative_to(HOUSE).as_posix() for path in files if again.search(path.read_text(encoding="utf-8"))]
    assert found == [], "import Array, Floats, Vector or Matrix from fedspan.arrays"
