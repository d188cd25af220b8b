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


def add(
    commands: Any,
    name: str,
    target: str,
    help: str,
    *arguments: Argument,
    description: str,
    example: str,
    **fixed: Any,
) -> None:
    """Add a command that calls `target`, written as ``module:function``, with its arguments and `fixed` ones by name.

    Modules are imported only when their command runs.
    """
    text = description if "\n" in description else textwrap.fill(description, 100)
    parser = commands.add_parser(
        name,
        help=help,
        description=text,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, settings in arguments:
        parser.add_argument(flag, **settings)
    parser.set_defaults(target=target, **fixed)


def group(commands: Any, name: str, help: str, example: str) -> Any:
    """Add a group of commands, and return what its commands are added to."""
    parser = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}. 'fedspan {name} COMMAND --help' explains a command.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
