"""Commands and their groups, as the command line declares them."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

#: The name of an argument, and its settings for argparse.
Argument = tuple[str, dict[str, Any]]


def option(name: str, help: str, **settings: Any) -> Argument:
    """Return an argument of a command."""
    return name, {"help": help, **settings}


def path(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    """Return an argument that is a path."""
    return name, {"type": Path, "metavar": metavar, "help": help, **settings}


class Commands:
    """The commands of a parser, or of a group; `module` has their functions, where a command states no other target."""

    def __init__(self, parser: argparse.ArgumentParser, module: str = "") -> None:
        self._parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
        self._module = module

    def add(
        self, name: str, help: str, *arguments: Argument, description: str, example: str, target: str = "", **fixed: Any
    ) -> None:
        """Add a command that calls `target`, written as ``module:function``, with its arguments and `fixed` ones.

        Default: the function of the command's name. Modules are imported only when their command runs.
        """
        text = description if "\n" in description else textwrap.fill(description, 100)
        parser = self._parser(name, help, text, example)
        for flag, settings in arguments:
            parser.add_argument(flag, **settings)
        parser.set_defaults(target=target or f"{self._module}:{name}", **fixed)

    def group(self, name: str, help: str, example: str, module: str = "") -> Commands:
        """Add a group of commands, and return it."""
        text = f"{help[0].upper()}{help[1:]}. 'fedspan {name} COMMAND --help' explains a command."
        return Commands(self._parser(name, help, text, example), module)

    def _parser(self, name: str, help: str, description: str, example: str) -> argparse.ArgumentParser:
        return self._parsers.add_parser(
            name,
            help=help,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
