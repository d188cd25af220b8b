"""``fedspan site``: for the owner of a site."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

CHECK_HELP = """\
Try all that a site's file says, without joining a federation.

Reads the file and the data; prints the columns with their kinds and how many cells are missing (no values), what
differs from the schema (with --kit, also from the federation's), the rules in words, the budget, the log, and which
estimators could run under the rules. Writes nothing. Ends with one sentence for each problem and exit code 1, or with
exit code 0.
"""

LOG_HELP = """\
Verify a site's audit log, and sum it up: by user, how many calls were answered, refused and failed, and how many bytes
left the site. Ends with exit code 1 if a line was altered or taken out.

The last line's digest is printed: whoever keeps it elsewhere notices, with --last, that lines were taken off the end.
"""


def add_site_commands(commands: Any) -> Any:
    """Add ``site`` to the command line's commands, and return its own, to which an engine adds ``start``."""
    site = commands.add_parser(
        "site",
        help="for the owner of a site: start it, check its settings, verify its log",
        description="For the owner of a site. 'fedspan site COMMAND --help' explains a command.",
    )
    of_site = site.add_subparsers(title="commands", metavar="COMMAND", required=True)

    plain = argparse.RawDescriptionHelpFormatter
    check = of_site.add_parser(
        "check", help="try all that a site's file says", description=CHECK_HELP, formatter_class=plain
    )
    check.add_argument("file", type=Path, metavar="site.toml", help="the site's file")
    check.add_argument(
        "--kit",
        type=Path,
        metavar="KIT",
        help="the site's kit: compare with the federation's schema and the site's name",
    )
    check.set_defaults(command=_check)

    log = of_site.add_parser("log", help="verify an audit log", description=LOG_HELP, formatter_class=plain)
    log.add_argument("file", type=Path, metavar="FILE", help="the audit log")
    log.add_argument("--refused", action="store_true", help="also print each call that was refused or failed, and why")
    log.add_argument("--last", metavar="DIGEST", help="a last digest that was kept: it must still be in the log")
    log.set_defaults(command=_log)
    return of_site


def _check(arguments: argparse.Namespace) -> int:
    from fedspan.cli.site.check_command import check_site

    return check_site(arguments.file, arguments.kit)


def _log(arguments: argparse.Namespace) -> int:
    from fedspan.cli.site.log_command import show_log

    return show_log(arguments.file, refused=arguments.refused, last=arguments.last)
