"""Writes the pages of the API reference, grouped by topic, from the package itself: no name is listed by hand."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import fedspan
from fedspan.cli.main import _parser
from fedspan.federation.site.discovery import ROOMS, install_steps
from fedspan.federation.site.steps import Step
from fedspan.owner.allowed_steps import admitted_at


@dataclass(frozen=True)
class Topic:
    """A page of the reference: its title, and the rooms of ``src/fedspan`` that it covers."""

    title: str
    rooms: tuple[str, ...]

    @property
    def modules(self) -> list[ModuleType]:
        """The rooms, imported."""
        return [importlib.import_module(f"fedspan.{room}") for room in self.rooms]


#: The topics by group; a page has the name of its topic's first room.
GROUPS = {
    "Capabilities": (
        Topic("PCA", ("pca",)),
        Topic("Tables", ("tables", "sums")),
        Topic("Statistics", ("statistics",)),
        Topic("Anomaly detection", ("anomaly", "gateway")),
        Topic("Landmarks", ("landmarks",)),
        Topic("Clustering", ("clustering",)),
        Topic("Maps", ("maps",)),
        Topic("Atlases", ("atlases",)),
        Topic("Few-shot regression", ("few_shot",)),
        Topic("Mixed regression", ("mixed_regression",)),
        Topic("Model selection", ("model_selection", "pipelines")),
        Topic("Index of protocols", ("protocols",)),
    ),
    "Federation": (
        Topic("Federation", ("federation",)),
        Topic("Engines", ("engines",)),
        Topic("Site owners", ("owner",)),
        Topic("Models, messages and errors", ("base", "persistence", "wire", "errors")),
    ),
    "Protection": (
        Topic("Privacy", ("privacy",)),
        Topic("Secure sums", ("secure_sum",)),
        Topic("Audit", ("audit",)),
        Topic("Attacks", ("attacks",)),
        Topic("Aggregation", ("aggregation",)),
    ),
    "Numbers, data and reports": (
        Topic("Linear algebra", ("linalg",)),
        Topic("Datasets", ("datasets",)),
        Topic("Reports", ("report", "plots", "tracking")),
        Topic("Command line", ("cli", "console", "papers")),
    ),
}
TOPICS = {topic.rooms[0]: topic for topics in GROUPS.values() for topic in topics}
EXAMPLES = Path(__file__).parent.parent / "examples"
#: Rooms whose names are for fedspan's own modules only.
INTERNAL = {"__main__", "arrays", "checks", "durable", "progress"}


def public_names(module: ModuleType) -> dict[str, list[str]]:
    """Return the names that a room's page lists, by module: ``fedspan`` where it has them, else the room."""
    room = module.__name__
    if room == "fedspan.protocols":
        return {}  # its page has links to the algorithms
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == room]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    top = [name for name in fedspan.__all__ if is_in(getattr(fedspan, name).__module__, room)]
    rest = [name for name in names if name not in top and not inspect.ismodule(getattr(module, name))]
    return {where: sorted(names) for where, names in (("fedspan", top), (room, rest)) if names}


def is_in(module: str, room: str) -> bool:
    """Return whether a module is a room, or stands below it."""
    return f"{module}.".startswith(f"{room}.")


@cache
def steps() -> dict[str, Step]:
    """Return the installed steps of fedspan by id."""
    return {id: step for id, step in install_steps().items() if is_in(step.function.__module__, "fedspan")}


def steps_in(room: str) -> dict[str, Step]:
    """Return the steps that a room or module defines, by id."""
    return {id: step for id, step in steps().items() if is_in(step.function.__module__, room)}


def algorithms(module: ModuleType) -> list[ModuleType]:
    """Return the modules of a room that define a protocol or a step."""
    if module.__name__ not in ROOMS:
        return []
    found = pkgutil.walk_packages(module.__path__, f"{module.__name__}.")
    names = (entry.name for entry in found if not entry.ispkg)
    return [found for found in map(importlib.import_module, names) if protocol_names(found) or steps_in(found.__name__)]


def protocol_names(module: ModuleType) -> list[str]:
    """Return the protocols that a module defines: the public functions whose first parameter is called ``fed``."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [(name, value) for name, value in found if value.__module__ == module.__name__ and not name.startswith("_")]
    own.sort(key=lambda pair: inspect.unwrap(pair[1]).__code__.co_firstlineno)
    return [name for name, value in own if next(iter(inspect.signature(value).parameters), None) == "fed"]


def first_paragraph(thing: object) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def page_of(module: str) -> str:
    """Return the address of the page of a module that holds a protocol or a step, inside of the reference."""
    _, room, *rest = module.split(".")
    topic = next(name for name, topic in TOPICS.items() if room in topic.rooms)
    return f"{topic}/{rest[-1]}"


def topic_page(name: str, topic: Topic) -> str:
    """Return a topic's page: what its rooms hold, their public names, their algorithms and steps."""
    text = heading(topic.title)
    for module in topic.modules:
        text += f".. automodule:: {module.__name__}\n\n"
        for where, names in public_names(module).items():
            listed = "".join(f"   {name}\n" for name in names)
            text += f".. currentmodule:: {where}\n\n.. autosummary::\n   :toctree: names\n\n{listed}\n"
    if name == "protocols":
        rows = [(f":doc:`{protocol} </api/{page_of(f'fedspan.{where}')}>`",) for protocol, where in index()]
        return text + table("Published algorithms", rows, "100")
    if name == "cli":
        return text + "".join(f"{heading(command, '-')}{literal(help)}\n" for command, help in commands())
    found = [module for room in topic.modules for module in algorithms(room)]
    rows = [(f":doc:`/api/{page_of(module.__name__)}`", first_paragraph(module)) for module in found]
    text += table("Algorithms and their parts", rows, "25 75")
    text += steps_table({id: step for room in topic.modules for id, step in steps_in(room.__name__).items()})
    text += gallery_links(topic)
    if found:
        pages = "".join(f"   {page_of(module.__name__)}\n" for module in found)
        text += f".. toctree::\n   :hidden:\n   :maxdepth: 1\n\n{pages}"
    return text


def gallery_links(topic: Topic) -> str:
    """Return links to the examples of the gallery that use a topic's public names."""
    names = [
        f"{where}.{name}" for module in topic.modules for where, found in public_names(module).items() for name in found
    ]
    used = re.compile("|".join(rf"\b{re.escape(name.replace('fedspan.', 'fs.', 1))}\b" for name in names) or "(?!)")
    links = []
    for path in sorted(EXAMPLES.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if used.search(source):
            title = (ast.get_docstring(ast.parse(source)) or path.stem).splitlines()[0]
            links.append(f"- :doc:`{title} </gallery/{path.stem}>`\n")
    return f"**In the gallery**\n\n{''.join(links)}\n" if links else ""


def algorithm_page(module: ModuleType) -> str:
    """Return the page of one module: its docstring, what leaves a site, its protocols and steps."""
    name = module.__name__
    own = steps_in(name)
    functions = [*protocol_names(module), *(step.function.__name__ for step in own.values())]
    described = "".join(f".. autofunction:: {name}.{function}\n\n" for function in functions)
    path = f"src/{name.replace('.', '/')}.py"
    return f"{heading(name.split('.')[-1])}.. automodule:: {name}\n\nFile: ``{path}``\n\n{steps_table(own)}{described}"


def steps_table(found: dict[str, Step]) -> str:
    """Return a table of steps: id, what the reply reveals, the levels of a site that admit it, what leaves."""
    rows = []
    for id, step in found.items():
        where = step.function.__module__
        link = f":doc:`{id} </api/{page_of(where)}>`"
        paragraphs = (inspect.getdoc(step.function) or "").split("\n\n")
        leaves = [" ".join(text.split()) for text in paragraphs if "eaves the site" in text]
        rows.append((link, step.reveals, ", ".join(admitted_at(step)), " ".join(leaves)))
    head = ("step", "reveals", "levels", "reply")
    return table("What leaves a site", [head, *rows] if rows else [], "25 10 12 53", header=1)


def index() -> list[tuple[str, str]]:
    """Return the published algorithms with their modules."""
    return sorted(fedspan.protocols.INDEX.items())


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[tuple[str, str]]:
    """Yield every command of the command line with its help."""
    parser = parser or _parser()
    with patch.dict(os.environ, COLUMNS="100"):
        yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)


def table(title: str, rows: list[tuple[str, ...]], widths: str, header: int = 0) -> str:
    """Return a titled table, or nothing where it has no rows."""
    lines = "".join(f"   * - {first}\n" + "".join(f"     - {cell}\n" for cell in rest) for first, *rest in rows)
    options = f"   :widths: {widths}\n   :header-rows: {header}\n"
    return f"**{title}**\n\n.. list-table::\n{options}\n{lines}\n" if rows else ""


def literal(text: str) -> str:
    """Return a block that is shown as it is."""
    return ".. code-block:: text\n\n" + "".join(f"   {line}\n" if line else "\n" for line in text.splitlines())


def heading(text: str, line: str = "=") -> str:
    """Return a title."""
    return f"{text}\n{line * len(text)}\n\n"


def index_page() -> str:
    """Return the first page: the topics by group, each with a sentence."""
    text = heading("API reference")
    for group, topics in GROUPS.items():
        text += heading(group, "-")
        for topic in topics:
            text += f"- :doc:`{topic.title} <{topic.rooms[0]}>`: {first_sentence(topic.modules[0])}\n"
        listed = "".join(f"   {topic.rooms[0]}\n" for topic in topics)
        text += f"\n.. toctree::\n   :hidden:\n   :maxdepth: 1\n\n{listed}\n"
    return text


def first_sentence(module: ModuleType) -> str:
    """Return how a module's docstring begins."""
    return first_paragraph(module).split(". ")[0].rstrip(".:") + "."


def write_reference(folder: Path) -> None:
    """Write all pages, each only if it has changed, so that an unchanged one is not built again."""
    pages = {"index": index_page()} | {name: topic_page(name, topic) for name, topic in TOPICS.items()}
    for module in (module for topic in TOPICS.values() for room in topic.modules for module in algorithms(room)):
        pages[page_of(module.__name__)] = algorithm_page(module)
    for path, text in pages.items():
        target = folder / f"{path}.rst"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
