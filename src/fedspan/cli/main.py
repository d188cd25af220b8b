"""``fedspan``: the command line. Bad input is one sentence on standard error and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import fedspan
from fedspan.checks import printable
from fedspan.cli import help_texts
from fedspan.cli.command_parser import Commands
from fedspan.cli.command_parser import option as _option
from fedspan.cli.command_parser import path as _path
from fedspan.cli.console import one_line_warning
from fedspan.cli.federation import members_parser
from fedspan.cli.operation.operation_arguments import add_operation_commands
from fedspan.cli.site import owner_arguments
from fedspan.errors import DataMissingError, FedspanError, InputError, JournalError, MissingPackageError, PolicyError

#: The papers that ``fedspan reproduce`` knows, and the modules that run them.
PAPERS = {
    "fed-tsne": "fedspan.papers.fed_tsne",
    "fedpca": "fedspan.papers.fedpca",
    "few-shot": "fedspan.papers.few_shot_paper",
    "mixed-regression": "fedspan.papers.mixed_regression_paper",
    "streams": "fedspan.papers.streams_paper",
    "subspace-median": "fedspan.papers.subspace_median_paper",
}

#: The published methods that ``fedspan audit --of`` attacks.
METHODS = ("fed-tsne", "sense")
#: An address of a local page.
CONSOLE: dict[str, Any] = {"nargs": "?", "const": "8765", "metavar": "[HOST:]PORT"}
#: Errors that a user can correct.
_BAD_INPUTS = (DataMissingError, InputError, JournalError, MissingPackageError, PolicyError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    function, usual = "", warnings.formatwarning
    warnings.formatwarning = one_line_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of names that a terminal's encoding lacks
    try:
        values = vars(_parser().parse_args(argv))
        module, _, function = str(values.pop("target")).partition(":")
        code = int(getattr(importlib.import_module(module), function)(**values))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as 'head', has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except FedspanError as error:
        print(printable(f"fedspan: {error}"), file=sys.stderr)
        return 2 if isinstance(error, _BAD_INPUTS) else 1
    except OSError as error:  # a folder that can't be written to, a full disk
        if error.filename is None or error.strerror is None:
            raise
        way_out = "; choose another folder, or allow it there" if isinstance(error, PermissionError) else ""
        line = f"fedspan: {error.filename} cannot be read or written: {error.strerror}{way_out}"
        print(printable(line), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; finished calls are kept, continue with --resume" if function == "run" else ""
        print(f"fedspan: interrupted{kept}", file=sys.stderr)
        return 130
    finally:
        warnings.formatwarning = usual


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedspan",
        description="Learn the shared structure of data that cannot be pooled.",
        epilog=f"'fedspan COMMAND --help' explains a command.\n\nexample:\n  {help_texts.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fedspan {fedspan.__version__}")
    commands = Commands(parser)
    _add_local(commands)
    _add_federation(commands)
    commands.add(
        "reproduce",
        "run a paper's tables and figures, ours beside theirs",
        _option("paper", "which paper", choices=sorted(PAPERS)),
        _option("--quick", "fewer seeds, rows or settings, for a first look", action="store_true"),
        _path("--out", "FOLDER", "where to write (default: reproduce-PAPER)"),
        description="Run a paper's setting, print its tables with our numbers beside the paper's, and save a page.",
        example="fedspan reproduce fedpca --quick",
        target="fedspan.cli.main:reproduce",
    )
    _add_site(commands)
    add_operation_commands(commands)
    return parser


def _add_local(commands: Commands) -> None:
    """Add the commands that need no federation but the embedded one."""
    run = _path("run", "RUN", "output folder of 'fedspan run', a run_dir, or a model")
    commands.add(
        "demo",
        "eight short runs with pictures, on one page",
        _path("--out", "FOLDER", "where to write (default: demo)", default=Path("demo")),
        _option("--seed", "seed of the split and of the runs (default: 0)", type=int, default=0),
        description=help_texts.DEMO,
        example="fedspan demo --out demo",
        target="fedspan.cli.demo.demo_command:demo",
    )
    commands.add(
        "init",
        "write a study file for some tables",
        _option(
            "files", "one table per site, or one with a column that names sites", nargs="+", type=Path, metavar="FILE"
        ),
        description=help_texts.INIT,
        example="fedspan init north.csv south.csv west.csv",
        target="fedspan.cli.study.init_command:init",
    )
    commands.add(
        "check",
        "print what a study would do, without running it",
        _path("study", "STUDY.toml", "the study file"),
        description=help_texts.CHECK,
        example="fedspan check study.toml",
        target="fedspan.cli.study.study_check_command:check_study",
    )
    commands.add(
        "describe",
        "describe a study's data, and leave a page",
        _path("study", "STUDY.toml", "the study file; it needs no model"),
        _option("--by", "a column of groups, or 'site', instead of the study's own", metavar="COLUMN"),
        _path("--kit", "KIT", "a user's kit: describe the data of the sites of a real federation"),
        _option(
            "--crosstab", "print this table instead, and its chi-square test", nargs=2, metavar=("ROWS", "COLUMNS")
        ),
        _option("--histogram", "print the counts of this column instead, with --by by group", metavar="COLUMN"),
        _option("--pairs", "print this of all pairs of columns instead", choices=("pearson", "spearman", "covariance")),
        _path(
            "--out", "FILE", "the page (default: STUDY.describe.html, beside the study), or a CSV file for the table"
        ),
        description=help_texts.DESCRIBE,
        example="fedspan describe study.toml --by sex",
        target="fedspan.cli.study.describe_command:describe_study",
    )
    commands.add(
        "run",
        "run the study that a TOML file describes",
        _path("study", "STUDY.toml", "the study file"),
        _path("--out", "FOLDER", "output folder, instead of the study's own"),
        _path("--kit", "KIT", "a user's kit: run it at the sites of a real federation, on their data"),
        _option("--detach", "with --kit: let the coordinator run it, and fetch it later", action="store_true"),
        _option("--hours", "with --detach: how long the coordinator may act for you (24)", type=float, default=24.0),
        _option("--resume", "continue in a used output folder where the run stopped", action="store_true"),
        _option("--live", "write live.html in the output folder, a page that follows the run", action="store_true"),
        _option("--partial", "learn on from what is new at each site since the last round", action="store_true"),
        _option("--every", "with --partial: a round in each such time, such as 1h or 15min", metavar="TIME"),
        _option("--rounds", "with --every: stop after this number of rounds", type=int, metavar="N"),
        description=help_texts.RUN,
        example="fedspan run study.toml",
        target="fedspan.cli.study.run_command:run",
    )
    commands.add(
        "apply",
        "write what a trained model gives for each row of a new table",
        _path("study", "STUDY", "output folder of 'fedspan run', or a saved model or pipeline"),
        _path("new", "NEW", "the table of the new rows: CSV, JSON lines, Parquet, Feather, Excel or NPZ"),
        _path("--out", "FILE", "where to write: a .csv or .parquet file", required=True),
        _option("--site", "the site of all new rows, for models that differ by site", metavar="NAME"),
        description=help_texts.APPLY,
        example="fedspan apply study new.csv --out scores.csv",
        target="fedspan.cli.study.apply_command:apply",
    )
    commands.add(
        "gateway",
        "score rows as they come, and write alarms, on a small device",
        _path("model", "MODEL", "what fs.export(fs.load('study'), 'detector.npz') wrote"),
        _path("--rows", "FILE", "read rows from a file instead of standard input"),
        _option("--follow", "with --rows: wait for further rows at the end of the file", action="store_true"),
        _option(
            "--format", "of the rows (default: csv for a .csv file, else jsonl)", dest="form", choices=("jsonl", "csv")
        ),
        _path("--alarms", "FILE", "append alarms to a file instead of standard output"),
        _path("--state", "FILE", "keep the place in the input, and sums for the next federated update"),
        _option("--top", "features that an alarm names (default: 3)", type=int, default=3),
        _path("--periods", "FOLDER", "with --state: write the sums of each period here, for the next federated update"),
        _option("--every", "seconds of a period (default: 3600)", type=float, default=3600.0),
        description=help_texts.GATEWAY,
        example="fedspan gateway detector.npz --rows traffic.jsonl --follow --state sums.npz --alarms alarms.jsonl",
        target="fedspan.gateway.gateway_loop:gateway",
    )
    commands.add(
        "report",
        "write the report of an earlier run",
        run,
        _path("--out", "FILE", "the page (default: report.html in the folder, MODEL.html beside a model)"),
        description=help_texts.REPORT,
        example="fedspan report study",
        target="fedspan.cli.report_command:report",
    )
    commands.add(
        "audit",
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
        example="fedspan audit study --bounds 0,1",
        target="fedspan.cli.audit_command:audit_run",
    )


def _add_federation(commands: Commands) -> None:
    """Add the commands for real federations and detached studies."""
    module, kit = "fedspan.cli.federation.federation_command", _path("kit", "KIT", "a user's kit")
    federation = commands.group(
        "federation",
        "set up a real federation, see its status, try it out",
        "fedspan federation demo",
        members_parser.MODULE,
    )
    steps = _option("--steps", "name all steps that each site's owner allows", action="store_true")
    federation.add(
        "status",
        "sites online, with version, rows and steps",
        kit,
        steps,
        description="Print which sites of the federation are online, their versions, rows and allowed steps.",
        example="fedspan federation status kits/alice",
        target=f"{module}:status",
    )
    federation.add(
        "demo",
        "start a coordinator and three sites on this machine, run a study, compare, and stop them",
        _option("--seed", "seed of the split and of the study (default: 0)", type=int, default=0),
        description=help_texts.FEDERATION_DEMO,
        example="fedspan federation demo",
        target="fedspan.cli.federation.demo_federation_command:demo",
    )
    coordinator = commands.group(
        "coordinator", "run the coordinator of a real federation", "fedspan coordinator start kits/coordinator"
    )
    members_parser.add_authority(federation)
    members_parser.add_operation(federation)
    members_parser.add_enrolment(coordinator, "coordinator")
    members_parser.add_enrolment(commands.group("user", "take part as a user", "fedspan user enroll alice"), "user")
    own = _path("path", "KIT", "the coordinator's kit")
    coordinator.add(
        "start",
        "in the foreground, until Ctrl-C",
        own,
        _option("--console", "serve the coordinator's page (default: 8765, on this machine alone)", **CONSOLE),
        _option("--json", "print events as lines of JSON", action="store_true", dest="json_lines"),
        description="Run the federation's coordinator in the foreground, until Ctrl-C.",
        example="fedspan coordinator start kits/coordinator",
        target="fedspan.cli.operation.start_coordinator_command:start",
    )

    one = _option("study", "one of them (default: all of yours)", nargs="?", metavar="STUDY")
    commands.add(
        "status",
        "the state of detached studies",
        kit,
        one,
        _option("--watch", "print it again every two seconds, until all are over", action="store_true"),
        description="Print the state of the studies that the coordinator runs for you: progress, calls, time left.",
        example="fedspan status kits/alice",
        target=f"{module}:studies",
    )
    study = _option("study", "its name, as 'fedspan status' prints it", metavar="STUDY")
    commands.add(
        "cancel",
        "cancel a detached study and revoke its authorisation",
        kit,
        study,
        description="Cancel a study that the coordinator runs for you, and revoke its authorisation.",
        example="fedspan cancel kits/alice study-1",
        target=f"{module}:cancel",
    )
    commands.add(
        "fetch",
        "fetch the results of a detached study: models, records, report, journal",
        kit,
        study,
        _path("--out", "FOLDER", "a new folder", required=True),
        description="Fetch the models, records, report and journal of a detached study into a new folder.",
        example="fedspan fetch kits/alice study-1 --out results",
        target=f"{module}:fetch",
    )


def _add_site(commands: Commands) -> None:
    """Add the commands for the owner of a site."""
    site = commands.group(
        "site",
        "for the owner of a site: start it, check its settings, verify its log",
        "fedspan site check site.toml",
        owner_arguments.MODULE,
    )
    site.add(
        "check",
        "check a site's file and its data",
        _path("file", "site.toml", "the site's file"),
        _path("--kit", "KIT", "the site's kit: compare with the federation's schema and the site's name"),
        description=help_texts.SITE_CHECK,
        example="fedspan site check site.toml --kit kits/north",
        target="fedspan.cli.site.check_command:check",
    )
    site.add(
        "log",
        "verify an audit log",
        _path("file", "FILE", "the audit log"),
        _option("--refused", "also print each call that was refused or failed, and why", action="store_true"),
        _option("--last", "an earlier last digest: it must still be in the log", metavar="DIGEST"),
        description=help_texts.LOG,
        example="fedspan site log audit.jsonl --refused",
        target="fedspan.cli.site.log_command:log",
    )
    members_parser.add_enrolment(site, "site")
    own = _path("path", "KIT", "the site's kit")
    config = _path("--config", "site.toml", "the owner's data and rules", required=True)
    site.add(
        "start",
        "take part in a federation, in the foreground, until Ctrl-C",
        own,
        config,
        _option("--console", "serve the owner's page (default: 8765, on this machine alone)", **CONSOLE),
        _option("--json", "print events as lines of JSON", action="store_true", dest="json_lines"),
        description="Take part in a federation with the data and the rules of a site.toml, until Ctrl-C.",
        example="fedspan site start kits/north --config site.toml --console",
        target="fedspan.cli.site.start_command:start",
    )
    owner_arguments.add_owner_commands(site)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences like all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; '{self.prog} --help' explains the command")


def reproduce(paper: str, quick: bool, out: Path | None) -> int:
    """Run a paper's setting, print its tables, and save a page."""
    from fedspan.cli.study.run_folder import make_folder
    from fedspan.engines.local.blas_threads import PinnedThreads

    folder = out or Path(f"reproduce-{paper}")
    make_folder(folder)
    module = importlib.import_module(PAPERS[paper])
    one_thread = PinnedThreads(1)  # so that times and last bits do not depend on how many cores are free
    results = module.run(quick=quick)
    one_thread.release()
    results.print()
    print(f"report: {results.save(folder)}")
    return 0
