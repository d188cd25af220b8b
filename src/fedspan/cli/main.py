"""``fedspan``: the command line. Bad input is one sentence on standard error and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import fedspan
from fedspan.cli.federation.federation_commands import add_federation_commands, run_at_sites
from fedspan.cli.site.site_commands import add_site_commands
from fedspan.errors import FedspanError, InputError, JournalError

#: The papers that ``fedspan reproduce`` knows, and the modules that run them.
PAPERS = {
    "fed-tsne": "fedspan.papers.fed_tsne",
    "fedpca": "fedspan.papers.fedpca",
    "few-shot": "fedspan.papers.few_shot_paper",
    "mixed-regression": "fedspan.papers.mixed_regression_paper",
    "subspace-median": "fedspan.papers.subspace_median_paper",
}

RUN_HELP = """\
Run the study that a TOML file describes, on an embedded federation: one site per file, or per value of a site column.

A study:

    seed = 0                          # optional, default 0
    output = "results"                # optional, default: the study's name without .toml

    [data]                            # paths are relative to the study file
    file = "all.csv"                  # one table (CSV, Parquet or NPZ) with ...
    site_column = "hospital"          # ... a column that names each row's site
    # or one table per site:
    # sites = { north = "north.csv", south = "south.parquet" }
    features = ["age", "dose"]        # optional, default: all columns but the named ones below
    drop = ["id"]                     # optional: columns to leave out
    label = "outcome"                 # optional: shown as colour in the report, not learned from

    [[preprocess]]                    # optional, any number, in order
    name = "FedStandardScaler"        # or "FedTabularEncoder", if some columns are text

    [model]
    name = "FedPCA"                   # any estimator; the other keys are its parameters
    n_components = 5

    [federation]                      # optional
    n_jobs = 1
    wire = false
    deadline = 60.0
    run_deadline = 86400.0            # seconds for a whole run
    quorum = "majority"               # or "all", a count, a fraction

    [report]                          # optional
    # of a detector, rows that are kept back, to draw its ROC curve with; what says of each what it is; for normal ones:
    # judge = "test.csv"
    # label = "attack"
    # normal = "no"
    # image = [28, 28]                # height and width, where a row is an image: components are drawn as images

With --kit there is no [data], n_jobs or wire: the data are where the sites of the federation have them.

An NPZ file holds X (rows x columns) and optionally feature_names, label and, in a file for all sites, site.

Written to the output folder: model.fedspan (and one file for each preprocessing step), report.html, summary.json,
and for each run its record (record.jsonl) and journal. A run that was interrupted continues with --resume.
"""

AUDIT_HELP = """\
Attack what the coordinator of a run received, and say what it can rebuild of the rows.

Distances to landmarks, which maps and clusterings post, are turned back into rows (trilateration, with and without
public rows of the same kind, and as if the sites had turned their rows by a secret rotation). Rebuilt rows are measured
against the true ones: those of the study if its files are still there, or those of --truth.

Written to the output folder, for its owner alone: leaks.html, with rebuilt rows beside true ones, and leaks.json.
They are as private as the rows.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except (InputError, JournalError) as error:
        print(f"fedspan: {error}", file=sys.stderr)
        return 2
    except FedspanError as error:
        print(f"fedspan: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = "; what was done is kept, continue with --resume" if arguments.command is _run else ""
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

    demo = commands.add_parser(
        "demo",
        help="run an embedded federation on scikit-learn's digits and breast cancer tables",
        description=(
            "Split scikit-learn's digits and breast cancer tables over sites, scale them, learn an exact federated "
            "PCA, compare it with PCA on the pooled rows, and leave a report. Needs no files and no network."
        ),
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write (default: demo)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the split and of the runs (default: 0)")
    demo.set_defaults(command=_demo)

    run = commands.add_parser(
        "run",
        help="run the study that a TOML file describes",
        description=RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("study", type=Path, metavar="STUDY.toml", help="the study file")
    run.add_argument("--out", type=Path, metavar="FOLDER", help="output folder, instead of the study's own")
    run.add_argument(
        "--kit", type=Path, metavar="KIT", help="a user's kit: run it at the sites of a real federation, on their data"
    )
    run.add_argument("--detach", action="store_true", help="with --kit: let the coordinator run it, and fetch it later")
    run.add_argument(
        "--hours", type=float, default=24.0, help="with --detach: the coordinator may ask in your name so long (24)"
    )
    run.add_argument("--resume", action="store_true", help="continue in a used output folder where the run stopped")
    run.set_defaults(command=_run)

    report = commands.add_parser(
        "report",
        help="write the report of a run that was done before",
        description=(
            "Write the report of a run again: from its folder (requests, sites, failures and their reasons, "
            "rounds and bytes, the models' pictures, privacy, versions, how to run it again), also of a run that was "
            "stopped or fetched; or from a saved model. The table [report] of its study.toml is followed."
        ),
    )
    report.add_argument("run", type=Path, metavar="RUN", help="output folder of 'fedspan run', a run_dir, or a model")
    report.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: report.html in the folder, MODEL.html beside a model)",
    )
    report.set_defaults(command=_report)

    audit = commands.add_parser(
        "audit",
        help="attack what the coordinator of a run received, and say what it can rebuild",
        description=AUDIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    audit.add_argument("run", type=Path, metavar="RUN", help="output folder of 'fedspan run', a run_dir, or a model")
    audit.add_argument("--model", type=Path, metavar="FILE", help="the run's model, where it is not in the folder")
    audit.add_argument("--truth", type=Path, metavar="FILE", help="true rows: the study, or a table")
    audit.add_argument("--public", type=Path, metavar="FILE", help="rows of the same kind that an attacker could have")
    audit.add_argument("--image", metavar="28x28", help="height and width, where a row is an image")
    audit.add_argument("--bounds", metavar="0,1", help="least and greatest value of the data, for PSNR")
    audit.add_argument(
        "--compare", type=Path, metavar="RUN", help="another run or model, whose figures stand beside in the card"
    )
    audit.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: audit, in RUN)")
    audit.set_defaults(command=_audit)

    add_federation_commands(commands)

    reproduce = commands.add_parser(
        "reproduce",
        help="run a paper's tables and figures, ours beside theirs",
        description="Run a paper's setting, print its tables with our numbers beside the paper's, and save a page.",
    )
    reproduce.add_argument("paper", choices=sorted(PAPERS), help="which paper")
    reproduce.add_argument("--quick", action="store_true", help="fewer seeds, rows or settings, for a first look")
    reproduce.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: reproduce-PAPER)")
    reproduce.set_defaults(command=_reproduce)

    add_site_commands(commands)
    return parser


def _reproduce(arguments: argparse.Namespace) -> int:
    from fedspan.engines.local.blas_threads import PinnedThreads

    module = importlib.import_module(PAPERS[arguments.paper])
    one_thread = PinnedThreads(1)  # so that times and last bits do not depend on how many cores are free
    results = module.run(quick=arguments.quick)
    one_thread.release()
    results.print()
    page = results.save(arguments.out or Path(f"reproduce-{arguments.paper}"))
    print(f"report: {page}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from fedspan.cli.demo_command import run_demo

    run_demo(arguments.out, arguments.seed)
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    from fedspan.cli.audit_command import AuditPlan, run_audit

    given = {name: getattr(arguments, name) for name in AuditPlan.__dataclass_fields__}
    run_audit(AuditPlan(**given))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from fedspan.cli.report_command import run_report

    print(f"report: {run_report(arguments.run, arguments.out)}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from fedspan.cli.run_command import run_study
    from fedspan.cli.study_file import read_study

    study = read_study(arguments.study, arguments.out, at_sites=arguments.kit is not None)
    if arguments.kit is not None:
        return run_at_sites(study, arguments)
    if arguments.detach:
        raise InputError("--detach needs --kit: a detached study runs at a real federation's coordinator")
    run_study(study, resume=arguments.resume)
    return 0
