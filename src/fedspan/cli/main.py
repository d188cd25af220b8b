"""``fedspan``: the command line. Bad input is one sentence on standard error and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedspan
from fedspan.cli import help_texts
from fedspan.errors import FedspanError, InputError, JournalError

#: The papers that ``fedspan reproduce`` knows, and the modules that run them.
PAPERS = {
    "fed-tsne": "fedspan.papers.fed_tsne",
    "fedpca": "fedspan.papers.fedpca",
    "few-shot": "fedspan.papers.few_shot_paper",
    "mixed-regression": "fedspan.papers.mixed_regression_paper",
    "subspace-median": "fedspan.papers.subspace_median_paper",
}

#: The published methods that ``fedspan audit --of`` attacks.
METHODS = ("fed-tsne", "sense")
#: Targets that run in the foreground.
PROCESSES = "fedspan.engines.nvflare.setup.processes"
#: The name of an argument, and its settings for argparse.
Argument = tuple[str, dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    values = vars(_parser().parse_args(argv))
    target: str = values.pop("target")
    module, _, function = target.partition(":")
    try:
        return int(getattr(importlib.import_module(module), function)(**values))
    except FedspanError as error:
        print(f"fedspan: {error}", file=sys.stderr)
        return 2 if isinstance(error, (InputError, JournalError)) else 1
    except KeyboardInterrupt:
        kept = "; finished calls are kept, continue with --resume" if function == "run" else ""
        print(f"fedspan: interrupted{kept}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fedspan",
        description="Learn the shared structure of data that cannot be pooled.",
        epilog="'fedspan COMMAND --help' explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"fedspan {fedspan.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_local(commands)
    _add_federation(commands)
    _add(
        commands,
        "reproduce",
        "fedspan.cli.main:reproduce",
        "run a paper's tables and figures, ours beside theirs",
        _option("paper", "which paper", choices=sorted(PAPERS)),
        _option("--quick", "fewer seeds, rows or settings, for a first look", action="store_true"),
        _path("--out", "FOLDER", "where to write (default: reproduce-PAPER)"),
        description="Run a paper's setting, print its tables with our numbers beside the paper's, and save a page.",
    )
    _add_site(commands)
    return parser


def _add_local(commands: Any) -> None:
    """Add the commands that need no federation but the embedded one."""
    run = _path("run", "RUN", "output folder of 'fedspan run', a run_dir, or a model")
    _add(
        commands,
        "demo",
        "fedspan.cli.demo_command:demo",
        "run an embedded federation on scikit-learn's digits and breast cancer tables",
        _path("--out", "FOLDER", "where to write (default: demo)", default=Path("demo")),
        _option("--seed", "seed of the split and of the runs (default: 0)", type=int, default=0),
        description=help_texts.DEMO,
    )
    _add(
        commands,
        "run",
        "fedspan.cli.run_command:run",
        "run the study that a TOML file describes",
        _path("study", "STUDY.toml", "the study file"),
        _path("--out", "FOLDER", "output folder, instead of the study's own"),
        _path("--kit", "KIT", "a user's kit: run it at the sites of a real federation, on their data"),
        _option("--detach", "with --kit: let the coordinator run it, and fetch it later", action="store_true"),
        _option("--hours", "with --detach: how long the coordinator may act for you (24)", type=float, default=24.0),
        _option("--resume", "continue in a used output folder where the run stopped", action="store_true"),
        description=help_texts.RUN,
    )
    _add(
        commands,
        "report",
        "fedspan.cli.report_command:report",
        "write the report of an earlier run",
        run,
        _path("--out", "FILE", "the page (default: report.html in the folder, MODEL.html beside a model)"),
        description=help_texts.REPORT,
    )
    _add(
        commands,
        "audit",
        "fedspan.cli.audit_command:audit_run",
        "attack what the coordinator of a run received, and report what it can rebuild",
        _path("run", "RUN", f"{run[1]['help']}; not with --of", nargs="?"),
        _option(
            "--of", "a published method, on scikit-learn's digits (and MNIST, if in FEDSPAN_DATA)", choices=METHODS
        ),
        _path("--model", "FILE", "the run's model, where it is not in the folder"),
        _path("--truth", "FILE", "true rows: the study, or a table"),
        _path("--public", "FILE", "rows of the same kind that an attacker could have"),
        _option("--image", "height and width, where a row is an image", metavar="28x28"),
        _option("--bounds", "least and greatest value of the data, for PSNR", metavar="0,1"),
        _path("--compare", "RUN", "another run or model, whose figures stand beside in the card"),
        _path("--out", "FOLDER", "where to write (default: audit, in RUN)"),
        description=help_texts.AUDIT,
    )


def _add_federation(commands: Any) -> None:
    """Add the commands for real federations and detached studies."""
    module, kit = "fedspan.cli.federation.federation_command", _path("kit", "KIT", "a user's kit")
    federation = _group(commands, "federation", "set up a real federation, see its status, try it out")
    _add(
        federation,
        "init",
        f"{module}:init",
        "make the kits of all participants",
        _path("plan", "fed.toml", "name, server, sites, users, and a schema"),
        _path("--out", "FOLDER", "where to (default: kits)", default=Path("kits")),
        description=help_texts.INIT,
    )
    steps = _option("--steps", "name all steps that each site's owner allows", action="store_true")
    _add(federation, "status", f"{module}:status", "sites online, with version, rows and steps", kit, steps)
    _add(
        federation,
        "demo",
        "fedspan.cli.federation.demo_federation_command:demo",
        "start a coordinator and three sites on this machine, run a study, compare, and stop them",
        _option("--seed", "seed of the split and of the study (default: 0)", type=int, default=0),
        description="Exit code 1 if the result is not the embedded engine's, byte for byte.",
    )
    coordinator = _group(commands, "coordinator", "run the coordinator of a real federation")
    own = _path("path", "KIT", "the coordinator's kit")
    _add(coordinator, "start", f"{PROCESSES}:start_coordinator", "in the foreground, until Ctrl-C", own)

    one = _option("study", "one of them (default: all of yours)", nargs="?", metavar="STUDY")
    _add(commands, "status", f"{module}:studies", "the state of detached studies", kit, one)
    study = _option("study", "its name, as 'fedspan status' prints it", metavar="STUDY")
    _add(commands, "cancel", f"{module}:cancel", "cancel a detached study and revoke its authorisation", kit, study)
    results = "fetch the results of a detached study: models, records, report, journal"
    new = _path("--out", "FOLDER", "a new folder", required=True)
    _add(commands, "fetch", f"{module}:fetch", results, kit, study, new)


def _add_site(commands: Any) -> None:
    """Add the commands for the owner of a site."""
    site = _group(commands, "site", "for the owner of a site: start it, check its settings, verify its log")
    _add(
        site,
        "check",
        "fedspan.cli.site.check_command:check",
        "check a site's file and its data",
        _path("file", "site.toml", "the site's file"),
        _path("--kit", "KIT", "the site's kit: compare with the federation's schema and the site's name"),
        description=help_texts.CHECK,
    )
    _add(
        site,
        "log",
        "fedspan.cli.site.log_command:log",
        "verify an audit log",
        _path("file", "FILE", "the audit log"),
        _option("--refused", "also print each call that was refused or failed, and why", action="store_true"),
        _option("--last", "an earlier last digest: it must still be in the log", metavar="DIGEST"),
        description=help_texts.LOG,
    )
    own = _path("path", "KIT", "the site's kit")
    config = _path("--config", "site.toml", "the owner's data and rules", required=True)
    start = "take part in a federation, in the foreground, until Ctrl-C"
    _add(site, "start", f"{PROCESSES}:start_site", start, own, config)


def _option(name: str, help: str, **settings: Any) -> Argument:
    return name, {"help": help, **settings}


def _path(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    return name, {"type": Path, "metavar": metavar, "help": help, **settings}


def _add(
    commands: Any, name: str, target: str, help: str, *arguments: Argument, description: str | None = None
) -> None:
    """Add a command that calls `target`, written as ``module:function``, with its arguments by name.

    Modules are imported only when their command runs.
    """
    plain = argparse.RawDescriptionHelpFormatter if "\n" in (description or "") else argparse.HelpFormatter
    parser = commands.add_parser(name, help=help, description=description, formatter_class=plain)
    for flag, settings in arguments:
        parser.add_argument(flag, **settings)
    parser.set_defaults(target=target)


def _group(commands: Any, name: str, help: str) -> Any:
    """Add a group of commands, and return what its commands are added to."""
    parser = commands.add_parser(name, help=help, description=f"'fedspan {name} COMMAND --help' explains a command.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def reproduce(paper: str, quick: bool, out: Path | None) -> int:
    """Run a paper's setting, print its tables, and save a page."""
    from fedspan.engines.local.blas_threads import PinnedThreads

    module = importlib.import_module(PAPERS[paper])
    one_thread = PinnedThreads(1)  # so that times and last bits do not depend on how many cores are free
    results = module.run(quick=quick)
    one_thread.release()
    results.print()
    print(f"report: {results.save(out or Path(f'reproduce-{paper}'))}")
    return 0
