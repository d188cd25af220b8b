"""The commands of a site's owner that decide about studies, and their arguments."""

from __future__ import annotations

from fedspan.cli import help_texts
from fedspan.cli.command_parser import Commands, option, path

#: Has the functions of most of them.
MODULE = "fedspan.cli.site.decide_command"


def add_owner_commands(site: Commands) -> None:
    """Add the owner's commands to the group ``fedspan site``."""
    file = path("file", "site.toml", "the site's file")
    study = option("study", "its name, or the beginning of it, as 'fedspan site studies' prints it", metavar="STUDY")
    why = option("--why", "the reason, for the user", default="", metavar="TEXT")
    site.add(
        "studies",
        "studies that wait for approval, what runs, and what was decided",
        file,
        option(
            "--all", "also those that were decided and runs that have ended", action="store_true", dest="everything"
        ),
        description=help_texts.SITE_STUDIES,
        example="fedspan site studies site.toml",
    )
    site.add(
        "approve",
        "approve a study, once or as long as nothing changes",
        file,
        study,
        option("--always", "also later, as long as steps, parameters and rounds are the same", action="store_true"),
        description="Approve a study that waits. Without --always the approval is for this one time.",
        example="fedspan site approve site.toml 3f2a",
    )
    site.add(
        "refuse",
        "refuse a study with a reason, or withdraw an approval",
        file,
        study,
        option("--why", "the reason, for the user", required=True, metavar="TEXT"),
        description="Refuse a study with a reason that the user reads. An approval that was given is withdrawn.",
        example="fedspan site refuse site.toml 3f2a --why 'the ethics board has not decided'",
    )
    site.add(
        "stop",
        "stop a run: no further reply of it leaves the site",
        file,
        option("run", "the run, or the beginning of its name, as 'fedspan site studies' prints it", metavar="RUN"),
        why,
        description="Stop a run at this site. No further reply of it leaves, also not that of a step that runs now.",
        example="fedspan site stop site.toml 'FedPCA#1'",
    )
    site.add(
        "pause",
        "answer nothing until 'fedspan site resume'",
        file,
        why,
        description="Let the site answer nothing for a while. Runs wait for it, or go on without it.",
        example="fedspan site pause site.toml --why maintenance",
    )
    site.add(
        "confirm-ledger",
        "let a ledger that was restored from a backup charge again",
        file,
        description="Confirm a ledger that was restored. It lacks charges made after the backup: lower its epsilon.",
        example="fedspan site confirm-ledger site.toml",
        target="fedspan.cli.operation.backup_command:confirm",
    )
    site.add(
        "resume",
        "answer again",
        file,
        description="Let a paused site answer again.",
        example="fedspan site resume site.toml",
    )
