"""A site as its owner has set it up: its data, its rules, its log and its budget, ready to be asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedspan.errors import InputError
from fedspan.owner.audit_log import AuditLog
from fedspan.owner.guard import OwnerGuard
from fedspan.owner.owned_rows import Rows
from fedspan.owner.schema import differences, kind_of, times_of
from fedspan.owner.site_file import SiteFile, SiteFileError, read_site_file
from fedspan.privacy import Ledger


class OwnedSite:
    """A site and its owner's rules.

    The data are read once, here, and stay as they are until `refresh` is called, between runs, to see what has changed
    since.

    Parameters
    ----------
    file : SiteFile
        What the owner has written.
    federation : dict, optional
        The federation's schema: the kind of each column, which the data must have besides what the file itself says.

    Attributes
    ----------
    site : Site
        The rows, with the site's ledger.
    guard : OwnerGuard
        To be asked before a step touches data, and before a reply leaves.
    """

    def __init__(self, file: SiteFile, federation: dict[str, str] | None = None) -> None:
        self.file = file
        self.federation = federation
        self._stamp, rows = self._read()
        plan = file.privacy
        self.ledger = None if plan is None else Ledger(plan.ledger, plan.epsilon, plan.delta, strict=plan.strict)
        self._kinds, self.site = _kinds(rows), rows.site(file.name, self.ledger)
        self.guard = OwnerGuard(file.rules, self.site, AuditLog(file.log), self.ledger)

    def __repr__(self) -> str:
        return f"OwnedSite({self.file.name!r}, {self.file.data.source.label!r})"

    def refresh(self) -> bool:
        """Read the data anew if they may have changed, and return whether they were read.

        A file is read anew if it was written to or replaced since; a query is always asked again. For
        the time between runs: one that began with other data cannot go on.
        """
        stamp = self.file.data.source.stamp()
        if stamp is not None and stamp == self._stamp:
            return False
        stamp, rows = self._read()
        self._kinds, self.site = _kinds(rows), rows.site(self.file.name, self.ledger)
        self._stamp = stamp  # only now: what could not be used is read again
        self.guard.use(self.site)
        return True

    def describe(self) -> dict[str, Any]:
        """Return what others may know of this site: names, kinds and counts, no values."""
        rules = self.file.rules
        left = self.guard.budget_left()
        return {
            "name": self.site.name,
            "rows": len(self.site),
            "columns": dict(self._kinds),
            "label": self.file.data.label,
            "task": self.file.data.task,
            "steps": list(rules.steps.installed()),
            "rules": rules.in_words(),
            "budget": None
            if self.ledger is None
            else {"epsilon": self.ledger.epsilon, "delta": self.ledger.delta, "left": left},
        }

    def _read(self) -> tuple[object, Rows]:
        stamp = self.file.data.source.stamp()  # before: what is written meanwhile is read next time
        rows = self.file.data.read(times_of(self.file.schema, self.federation))
        problems = data_problems(self.file, rows, self.federation)
        if problems:
            raise SiteFileError(problems)
        return stamp, rows


def _kinds(rows: Rows) -> dict[str, str]:
    return {name: kind_of(rows.frame[name]) for name in rows.features}


def data_problems(file: SiteFile, rows: Rows, federation: dict[str, str] | None = None) -> list[str]:
    """Return what is wrong with the rows of a site, one sentence each."""
    label = file.data.source.label
    if not len(rows):
        kept = " that the row filter keeps" if file.data.where is not None else ""
        return [f"{label} has no rows{kept}"]
    said = [] if file.schema is None else differences(file.schema, rows.frame, rows.features)
    if federation is not None:
        said += differences(federation, rows.frame, rows.features, "the federation's schema")
    return [f"{label}: {sentence}" for sentence in said]


def read_owned_site(path: str | os.PathLike[str], federation: dict[str, str] | None = None) -> OwnedSite:
    """Read a site's file and its data.

    Parameters
    ----------
    path : path
        A ``site.toml``; files that it names are relative to it.
    federation : dict, optional
        The federation's schema, as the site's kit has it.

    Raises
    ------
    InputError
        With a sentence for each thing that is wrong. Nothing is read before the whole file is checked.
    """
    file = read_site_file(Path(path))
    try:
        return OwnedSite(file, federation)
    except SiteFileError:
        raise
    except InputError as error:
        raise InputError(f"{file.path}: {error}") from None
