"""``fedspan federation | coordinator | site start``: real federations from the command line."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

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

    [users]                             # who may do what
    alice = "analyst"                   # runs studies
    bob = "viewer"                      # sees who is online

    [schema]                            # may be left out: the columns that every site's table must have, in this order
    age = "integer"                     # boolean, integer, number, text, time or duration

Each kit is a folder with a private key: hand it to its owner in a safe way, and keep 'authority', with whose key
participants are made, to yourself. Run it again with more sites or users, or another
schema, in fed.toml to add them.
"""


def add_federation_commands(commands: Any) -> None:
    """Add ``federation`` and ``coordinator``."""
    federation = commands.add_parser("federation", help="set up a real federation, see who is there, try it out")
    parts = federation.add_subparsers(title="commands", metavar="COMMAND", required=True)
    init = parts.add_parser(
        "init",
        help="make the kits of all participants",
        description=INIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    init.add_argument("plan", type=Path, metavar="fed.toml", help="name, server, sites, users, and a schema")
    init.add_argument("--out", type=Path, default=Path("kits"), metavar="FOLDER", help="where to (default: kits)")
    init.set_defaults(command=_init)

    status = parts.add_parser("status", help="who is online, with which version, rows and steps")
    status.add_argument("kit", type=Path, metavar="KIT", help="a user's kit")
    status.add_argument("--steps", action="store_true", help="name all steps that each site's owner allows")
    status.set_defaults(command=_status)

    demo = parts.add_parser(
        "demo",
        help="start a coordinator and three sites on this machine, run a study, compare, take it down",
        description="Exit code 1 if the result is not the embedded engine's, byte for byte.",
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of the split and of the study (default: 0)")
    demo.set_defaults(command=_demo)

    coordinator = commands.add_parser("coordinator", help="run the coordinator of a real federation")
    start = coordinator.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser(
        "start", help="in the foreground, until Ctrl-C"
    )
    start.add_argument("kit", type=Path, metavar="KIT", help="the coordinator's kit")
    start.set_defaults(command=_coordinator)

    status = commands.add_parser("status", help="how detached studies go")
    status.add_argument("kit", type=Path, metavar="KIT", help="a user's kit")
    status.add_argument("study", nargs="?", metavar="STUDY", help="one of them (default: all of yours)")
    status.set_defaults(command=_studies)

    cancel = commands.add_parser("cancel", help="end a detached study, and take back your word for it")
    cancel.add_argument("kit", type=Path, metavar="KIT", help="a user's kit")
    cancel.add_argument("study", metavar="STUDY", help="its name, as 'fedspan status' says it")
    cancel.set_defaults(command=_cancel)

    fetch = commands.add_parser("fetch", help="bring the results of a detached study: models, records, report, journal")
    fetch.add_argument("kit", type=Path, metavar="KIT", help="a user's kit")
    fetch.add_argument("study", metavar="STUDY", help="its name, as 'fedspan status' says it")
    fetch.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder")
    fetch.set_defaults(command=_fetch)


def add_site_start(parts: Any) -> None:
    """Add ``site start``."""
    start = parts.add_parser("start", help="take part in a federation, in the foreground, until Ctrl-C")
    start.add_argument("kit", type=Path, metavar="KIT", help="the site's kit")
    start.add_argument("--config", type=Path, required=True, metavar="site.toml", help="the owner's data and rules")
    start.set_defaults(command=_site)


def run_at_sites(study: Study, arguments: argparse.Namespace) -> int:
    """Run a study at the sites of a kit's federation: here, or detached at the coordinator."""
    from fedspan.cli.run_command import run_study
    from fedspan.engines.nvflare.client.connect import connect

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
            "fetch' brings, and write the report anew with 'fedspan report'"
        )
    from fedspan.engines.nvflare.client.study_client import submit_study
    from fedspan.engines.nvflare.setup.kit import read_kit

    name = submit_study(read_kit(arguments.kit), study.path.stem, study.text, arguments.hours)
    print(f"study {name} is with the coordinator: 'fedspan status {arguments.kit}' says how it goes,")
    print(f"'fedspan fetch {arguments.kit} {name} --out FOLDER' brings its results")
    return 0


def _studies(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import list_studies
    from fedspan.engines.nvflare.setup.kit import read_kit

    found = list_studies(read_kit(arguments.kit))
    if arguments.study is not None:
        found = [about for about in found if about["study"] == arguments.study]
        if not found:
            raise InputError(f"there is no study {arguments.study!r} of yours at the coordinator")
    for about in found:
        since = datetime.datetime.fromtimestamp(about["since"]).strftime("%Y-%m-%d %H:%M")
        why = f": {about['why']}" if about["why"] else ""
        print(f"{about['study']}  {since}  {about['title']}  {about['state']}{why}")
    if not found:
        print("no detached studies of yours")
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import cancel_study
    from fedspan.engines.nvflare.setup.kit import read_kit

    state = cancel_study(read_kit(arguments.kit), arguments.study)
    if state != "cancelled":
        raise InputError(
            f"study {arguments.study} is {state} already; the coordinator asks no more in your name for it"
        )
    print(f"study {arguments.study} is cancelled, and the coordinator has deleted your word for it")
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.study_client import fetch_study
    from fedspan.engines.nvflare.setup.kit import read_kit

    fetch_study(read_kit(arguments.kit), arguments.study, arguments.out)
    print(f"report: {arguments.out / 'report.html'}")
    return 0


def _init(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.federation_plan import read_plan
    from fedspan.engines.nvflare.setup.provision import AUTHORITY, provision

    plan = read_plan(arguments.plan)
    done = provision(plan, arguments.out)
    if not done.made and not done.renewed:
        raise InputError(f"{done.folder} has the kits of all participants already; none was written over")
    for name in done.made:
        print(f"{done.folder / name}")
    if done.kept:
        print(f"kept as they are: {', '.join(done.kept)}")
    if done.renewed:
        print(f"but for a new fedspan.json, to be handed to its owner: {', '.join(done.renewed)}")
    days = (done.ends - done.now).days
    print(f"all certificates end on {done.ends:%Y-%m-%d}, in {days} days: make the federation anew before then")
    print(f"keep {done.folder / AUTHORITY} to yourself: whoever has it makes participants")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.client.status import federation_status

    status = federation_status(arguments.kit)
    console = Console(file=sys.stdout)
    table = Table(title=f"{status.kit.federation} at {status.kit.server}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("site", "", "fedspan", "rows", "columns", "steps"):
        table.add_column(column, justify="right" if column in ("rows", "columns", "steps") else "left")
    for site in status.sites:
        numbers = (site.rows, site.columns, len(site.steps) if site.rows is not None else None)
        shown = ["" if number is None else f"{number:,}" for number in numbers]
        table.add_row(site.name, "online" if site.online else "away", site.version, *shown)
    console.print(table)
    for site in status.sites:
        for remark in site.remarks:
            console.print(f"{site.name}: {remark}", soft_wrap=True, highlight=False)
        if arguments.steps:
            for step in site.steps:
                console.print(f"{site.name}: {step}", soft_wrap=True, highlight=False)
    if status.role != "analyst":
        console.print(f"({status.role}s see who is online; analysts also see what the sites are)", highlight=False)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from fedspan.cli.federation.demo_federation_command import run_federation_demo

    return 0 if run_federation_demo(arguments.seed) else 1


def _coordinator(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.processes import start_coordinator

    return start_coordinator(arguments.kit)


def _site(arguments: argparse.Namespace) -> int:
    from fedspan.engines.nvflare.setup.processes import start_site

    return start_site(arguments.kit, arguments.config)
