"""``fedspan site``: for the owner of a site."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECK_HELP = """\
Check a site's file and its data, without joining a federation.

Prints the columns with their kinds and their numbers of missing cells (no values), differences from the schema (with
--kit, also from the federation's), the rules in words, the budget, the log, and the steps that the rules allow. Writes
nothing. Ends with one sentence for each problem and exit code 1, or with exit code 0.
"""

LOG_HELP = """\
Verify a site's audit log, and sum it up: by user, the calls that were answered, refused and failed, and the bytes that
left the site. Ends with exit code 1 if a line was altered or removed.

The last line's digest is printed. Keep it elsewhere: with --last, it shows whether lines were removed from the end.
"""


def argument(name: str, help: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """Return an argument for `add_command`."""
    return name, {"help": help, **options}


def add_command(
    commands: Any,
    name: str,
    command: Callable[[argparse.Namespace], int],
    help: str,
    *arguments: tuple[str, dict[str, Any]],
    description: str | None = None,
) -> None:
    """Add one command to a group of commands."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name, help=help, description=description, formatter_class=plain)
    for flag, options in arguments:
        parser.add_argument(flag, **options)
    parser.set_defaults(command=command)


def add_group(commands: Any, name: str, help: str) -> Any:
    """Add a group of commands, and return what its commands are added to."""
    parser = commands.add_parser(name, help=help, description=f"'fedspan {name} COMMAND --help' explains a command.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_site_commands(commands: Any) -> None:
    """Add ``site`` to the command line's commands."""
    site = add_group(commands, "site", "for the owner of a site: start it, check its settings, verify its log")
    kit, path = {"type": Path, "metavar": "KIT"}, {"type": Path, "metavar": "site.toml"}
    file = argument("file", "the site's file", **path)
    compared = argument("--kit", "the site's kit: compare with the federation's schema and the site's name", **kit)
    add_command(site, "check", _check, "check a site's file and its data", file, compared, description=CHECK_HELP)
    log = argument("file", "the audit log", type=Path, metavar="FILE")
    refused = argument("--refused", "also print each call that was refused or failed, and why", action="store_true")
    last = argument("--last", "an earlier last digest: it must still be in the log", metavar="DIGEST")
    add_command(site, "log", _log, "verify an audit log", log, refused, last, description=LOG_HELP)
    own = argument("kit", "the site's kit", **kit)
    config = argument("--config", "the owner's data and rules", required=True, **path)
    add_command(site, "start", _start, "take part in a federation, in the foreground, until Ctrl-C", own, config)


def _check(arguments: argparse.Namespace) -> int:
    from fedspan.cli.site.check_command import check_site

    return check_site(arguments.file, arguments.kit)


def _log(arguments: argparse.Namespace) -> int:
    from fedspan.cli.site.log_command import show_log

    return show_log(arguments.file, refused=arguments.refused, last=arguments.last)


def _start(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.processes import start_site

    return start_site(arguments.kit, arguments.config)
