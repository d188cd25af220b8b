"""The commands of those who run a coordinator or a site, and their arguments."""

from __future__ import annotations

from fedspan.cli import help_texts
from fedspan.cli.command_parser import Commands, option, path

_MODULE = "fedspan.cli.operation"


def add_operation_commands(commands: Commands) -> None:
    """Add the commands of operators to ``fedspan``."""
    kit = path("kit", "KIT", "the kit of a coordinator, a site or a user")
    config = path("--config", "site.toml", "of a site: the owner's file")
    commands.add(
        "doctor",
        "check ports, clock, certificate, disk, versions and data, with remedies",
        kit,
        config,
        option("--health", "only whether the coordinator or the site of the kit answers", action="store_true"),
        description=help_texts.DOCTOR,
        example="fedspan doctor kits/north --config site.toml",
        target=f"{_MODULE}.doctor_command:doctor",
    )
    commands.add(
        "logs",
        "the log of a coordinator, a site or a detached study",
        kit,
        option("study", "a detached study, as 'fedspan status' prints it", nargs="?", metavar="STUDY"),
        option("--lines", "the number of last lines (default: 100)", type=int, default=100),
        option("--follow", "print what is added, until the study is over or Ctrl-C", action="store_true"),
        description=help_texts.LOGS,
        example="fedspan logs kits/alice 0123456789ab --follow",
        target=f"{_MODULE}.logs_command:logs",
    )
    commands.add(
        "backup",
        "write a kit and what belongs to it to one file",
        kit,
        path("--to", "FILE", "a new file, such as north.tar.gz", required=True),
        config,
        description=help_texts.BACKUP,
        example="fedspan backup kits/north --config site.toml --to north.tar.gz",
        target=f"{_MODULE}.backup_command:backup",
    )
    commands.add(
        "restore",
        "write what a backup holds into a new folder",
        path("file", "FILE", "what 'fedspan backup' wrote"),
        path("--to", "FOLDER", "a new folder", required=True),
        description=help_texts.RESTORE,
        example="fedspan restore north.tar.gz --to restored",
        target=f"{_MODULE}.backup_command:restore",
    )
