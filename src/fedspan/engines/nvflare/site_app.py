"""A site's part of a live federation: a process per run that answers the server's calls with the owner's worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.lifeline import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.parcel import pack, unpack
from fedspan.engines.nvflare.worker_factory import make_worker


class SiteApp:
    """Runs as a job at the site. What a request may do is decided by the worker, not here."""

    def __init__(self) -> None:
        die_with_parent()
        no_tensors()
        self._worker: Any = None

    @collab.init
    def setup(self) -> None:
        """Read the owner's data and rules: the kit's folder is this process's workspace."""
        quiet_logs()
        self._worker = make_worker(Path(collab.workspace.get_root_dir()))

    @collab.publish
    def answer(self, request: Any) -> Any:
        """Answer one request, if the server brings it: other sites could call this too."""
        if collab.caller != "server":
            raise PermissionError("only the federation's server may call a site")
        return pack(self._worker.answer(unpack(request)))
