"""``fedspan federation | coordinator | status | cancel | fetch``: real federations from the command line."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fedspan.cli.site.site_commands import add_command, add_group, argument
from fedspan.errors import InputError

if TYPE_CHECKING:
    from fedspan.cli.study_file import Study
    from fedspan.federation import Federation

INIT_HELP = """\
Make one kit for each participant of a federation: the coordinator, every site, every user.

fed.toml:

    name = "hospitals"
    server = "fl.example.org:8002"      # where the coordinator listens: the one port of the federation
    sites = ["north", "south", "west"]

    [users]                             # the role of each user
    alice = "analyst"                   # runs studies
    bob = "viewer"                      # sees which sites are online

    [schema]                            # optional: the columns that every site's table must have, in this order
    age = "integer"                     # boolean, integer, number, text, time or duration

Each kit is a folder with a private key: hand it to its owner in a safe way. Keep 'authority' to yourself: its key makes
participants. To add sites or users, or to change the schema, edit fed.toml and run this again.
"""


def add_federation_commands(commands: Any) -> None:
    """Add ``federation`` and ``coordinator``, and the commands for detached studies."""
    kit = argument("kit", "a user's kit", type=Path, metavar="KIT")
    federation = add_group(commands, "federation", "set up a real federation, see its status, try it out")
    plan = argument("plan", "name, server, sites, users, and a schema", type=Path, metavar="fed.toml")
    out = argument("--out", "where to (default: kits)", type=Path, default=Path("kits"), metavar="FOLDER")
    add_command(federation, "init", _init, "make the kits of all participants", plan, out, description=INIT_HELP)
    steps = argument("--steps", "name all steps that each site's owner allows", action="store_true")
    add_command(federation, "status", _status, "sites online, with version, rows and steps", kit, steps)
    demo_help = "start a coordinator and three sites on this machine, run a study, compare, and stop them"
    seed = argument("--seed", "seed of the split and of the study (default: 0)", type=int, default=0)
    add_command(
        federation,
        "demo",
        _demo,
        demo_help,
        seed,
        description="Exit code 1 if the result is not the embedded engine's, byte for byte.",
    )
    coordinator = add_group(commands, "coordinator", "run the coordinator of a real federation")
    own = argument("kit", "the coordinator's kit", type=Path, metavar="KIT")
    add_command(coordinator, "start", _coordinator, "in the foreground, until Ctrl-C", own)

    one = argument("study", "one of them (default: all of yours)", nargs="?", metavar="STUDY")
    add_command(commands, "status", _studies, "the state of detached studies", kit, one)
    study = argument("study", "its name, as 'fedspan status' prints it", metavar="STUDY")
    add_command(commands, "cancel", _cancel, "cancel a detached study and revoke its authorisation", kit, study)
    new = argument("--out", "a new folder", type=Path, required=True, metavar="FOLDER")
    results = "fetch the results of a detached study: models, records, report, journal"
    add_command(commands, "fetch", _fetch, results, kit, study, new)


def run_at_sites(study: Study, arguments: argparse.Namespace) -> int:
    """Run a study at the sites of a kit's federation: from here, or detached at the coordinator."""
    from fedspan.cli.run_command import run_study
    from fedspan.engines.nvflare.client.connect import connect
    from fedspan.engines.nvflare.client.study_client import submit_study

    if not arguments.detach:

        def opened(study: Study) -> Federation:
            return connect(arguments.kit, seed=study.seed, policy=study.policy, run_dir=study.output)

        run_study(study, resume=arguments.resume, connect=opened)
        return 0
    if arguments.out is not None or arguments.resume:
        raise InputError("--detach goes without --out and --resume: 'fedspan fetch' brings the results")
    if study.report.judge is not None:
        raise InputError(
            "--detach goes without [report] judge, whose rows are here: put it into the study.toml that 'fedspan "
            "fetch' brings, and write the report again with 'fedspan report'"
        )
    name = submit_study(arguments.kit, study.path.stem, study.text, arguments.hours)
    print(f"study {name} is submitted: 'fedspan status {arguments.kit}' shows its state,")
    print(f"'fedspan fetch {arguments.kit} {name} --out FOLDER' fetches its results")
    return 0


def _studies(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import list_studies

    found = list_studies(arguments.kit)
    if arguments.study is not None:
        found = [about for about in found if about["study"] == arguments.study]
        if not found:
            raise InputError(f"there is no study {arguments.study!r} of yours at the coordinator")
    for about in found:
        since = datetime.fromtimestamp(about["since"]).strftime("%Y-%m-%d %H:%M")
        why = f": {about['why']}" if about["why"] else ""
        print(f"{about['study']}  {since}  {about['title']}  {about['state']}{why}")
    if not found:
        print("no detached studies of yours")
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import cancel_study

    state = cancel_study(arguments.kit, arguments.study)
    if state != "cancelled":
        raise InputError(f"study {arguments.study} is {state} already, and its authorisation is deleted")
    print(f"study {arguments.study} is cancelled, and the coordinator has deleted its authorisation")
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import fetch_study

    fetch_study(arguments.kit, arguments.study, arguments.out)
    print(f"report: {arguments.out / 'report.html'}")
    return 0


def _init(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.kit import read_plan
    from fedspan.engines.nvflare.setup.provision import AUTHORITY, provision

    done, out = provision(read_plan(arguments.plan), arguments.out), arguments.out
    if not done.made and not done.renewed:
        raise InputError(f"{out} has the kits of all participants already; none was overwritten")
    for name in done.made:
        print(out / name)
    if done.kept:
        print(f"kept as they are: {', '.join(done.kept)}")
    if done.renewed:
        print(f"but for a new fedspan.json, to be handed to its owner: {', '.join(done.renewed)}")
    days = (done.ends - datetime.now(UTC)).days
    print(f"all certificates end on {done.ends:%Y-%m-%d}, in {days} days: make new kits before then")
    print(f"keep {out / AUTHORITY} to yourself: its key makes participants")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.status import federation_status
    from fedspan.engines.remote.coordinator.site_directory import SiteReport
    from fedspan.owner.admission import ANALYST

    status = federation_status(arguments.kit)
    console = Console(file=sys.stdout)
    table = Table(title=f"{status.kit.federation} at {status.kit.server}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("site", "", "fedspan", "rows", "columns", "steps"):
        table.add_column(column, justify="right" if column in ("rows", "columns", "steps") else "left")
    for site in status.kit.sites:
        report = status.reports.get(site, SiteReport())
        numbers = (report.rows, len(report.columns), len(report.allowed)) if report.rows is not None else ()
        shown = [f"{number:,}" for number in numbers]
        table.add_row(site, "online" if site in status.online else "offline", report.version, *shown)
    console.print(table)
    for site in status.kit.sites:
        steps = status.reports[site].allowed if arguments.steps and site in status.reports else ()
        for line in (*status.remarks.get(site, ()), *steps):
            console.print(f"{site}: {line}", soft_wrap=True, highlight=False)
    if status.role != ANALYST:
        console.print(f"({status.role}s see which sites are online; analysts also see their reports)", highlight=False)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from fedspan.cli.federation.demo_federation_command import run_federation_demo

    return 0 if run_federation_demo(arguments.seed) else 1


def _coordinator(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.processes import start_coordinator

    return start_coordinator(arguments.kit)
