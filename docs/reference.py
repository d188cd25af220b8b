"""Writes the pages of the API reference from the package itself: a new public name is there without being listed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

from fedspan import protocols

MODULES = (
    "fedspan",
    "fedspan.linalg",
    "fedspan.aggregation",
    "fedspan.attacks",
    "fedspan.privacy",
    "fedspan.audit",
    "fedspan.datasets",
    "fedspan.report",
    "fedspan.errors",
    "fedspan.wire",
)


def public_names(module: ModuleType) -> list[str]:
    """Return ``__all__``, or else what the module itself defines; no modules, which have pages of their own."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


def protocol_modules() -> list[ModuleType]:
    """Return the files of `fedspan.protocols` that hold a protocol: a function whose first argument is ``fed``."""
    files = (
        importlib.import_module(f"fedspan.protocols.{found.name}") for found in pkgutil.iter_modules(protocols.__path__)
    )
    return [module for module in files if protocol_names(module)]


def protocol_names(module: ModuleType) -> list[str]:
    """Return the protocols that a file defines."""
    return [name for name in own_functions(module) if next(iter(parameters(module, name)), None) == "fed"]


def step_names(module: ModuleType) -> list[str]:
    """Return the steps that a file defines: what runs at a site says what leaves it."""
    return [name for name in own_functions(module) if "leaves the site" in summary(module, name).lower()]


def own_functions(module: ModuleType) -> list[str]:
    """Return the public functions of a file, in its order."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [(name, value) for name, value in found if value.__module__ == module.__name__ and not name.startswith("_")]
    return [name for name, value in sorted(own, key=lambda pair: inspect.unwrap(pair[1]).__code__.co_firstlineno)]


def parameters(module: ModuleType, name: str) -> list[str]:
    """Return the names of a function's arguments."""
    return list(inspect.signature(getattr(module, name)).parameters)


def summary(module: ModuleType, name: str) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(getattr(module, name)) or "").split("\n\n")[0].split())


def first_sentence(module: ModuleType) -> str:
    """Return how a module's docstring begins, as one line."""
    lines = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())
    return lines.split(". ")[0].rstrip(".") + "."


def module_page(module: ModuleType) -> str:
    """Return a page with the module's own words and a table of its names, each of which gets a page."""
    names = "".join(f"   {name}\n" for name in public_names(module))
    return (
        f"{heading(module.__name__)}.. automodule:: {module.__name__}\n\n"
        f".. currentmodule:: {module.__name__}\n\n.. autosummary::\n   :toctree: names\n\n{names}"
    )


def protocol_page(module: ModuleType) -> str:
    """Return a page of one file of protocols: its words, what leaves a site, its functions."""
    name = module.__name__
    steps = "".join(f"   * - `{s} <#{name}.{s}>`__\n     - {summary(module, s)}\n" for s in step_names(module))
    table = f"**What leaves a site**\n\n.. list-table::\n   :widths: 25 75\n\n{steps}\n" if steps else ""
    functions = "".join(f".. autofunction:: {name}.{f}\n\n" for f in [*protocol_names(module), *step_names(module)])
    path = f"src/{name.replace('.', '/')}.py"
    return f"{heading(name.split('.')[-1])}.. automodule:: {name}\n\nFile: ``{path}``\n\n{table}{functions}"


def heading(text: str) -> str:
    """Return a title of the first rank."""
    return f"{text}\n{'=' * len(text)}\n\n"


def write_reference(folder: Path) -> None:
    """Write all pages, each only if it has changed, so that an unchanged one is not built again."""
    found = protocol_modules()
    table = "".join(f"   {module.__name__.split('.')[-1]}\n" for module in found)
    pages = {f"{name}.rst": module_page(importlib.import_module(name)) for name in MODULES}
    pages |= {f"protocols/{module.__name__.split('.')[-1]}.rst": protocol_page(module) for module in found}
    pages["protocols/index.rst"] = (
        f"{heading('fedspan.protocols')}One algorithm a file, both sides of it. Each page says what leaves a site; "
        "the main ones have :doc:`sheets </protocols/index>` with costs and figures.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{table}"
    )
    listed = "".join(f"   {name}\n" for name in MODULES)
    words = "".join(f"- :doc:`{name}`: {first_sentence(importlib.import_module(name))}\n" for name in MODULES)
    words += "- :doc:`fedspan.protocols <protocols/index>`: One algorithm a file, both sides of it.\n"
    hidden = f".. toctree::\n   :hidden:\n   :maxdepth: 1\n\n{listed}   protocols/index\n"
    pages["index.rst"] = f"{heading('API reference')}{words}\n{hidden}"
    for path, text in pages.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
