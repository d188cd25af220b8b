"""What the coordinator's page shows of the sites: who is online and in which version, in a file of the kit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.setup.kit import write_json

#: Seconds between two versions of the file; one that is much older is of a coordinator that does not run.
EVERY = 2.0


class StateFile:
    """Writes the sites that are `online` to the kit of a coordinator."""

    def __init__(self, kit: Path, online: Callable[[], list[str]], admittance: Admittance) -> None:
        self._kit, self._online, self._admittance = kit, online, admittance

    def state(self) -> dict[str, Any]:
        """Return the sites that are online, with the version of fedspan that each has stated, and the disabled ones."""
        known = self._admittance
        online = {site: known.site_versions.get(site, "") for site in self._online() if site in known.sites}
        return {"when": time.time(), "sites": sorted(known.sites), "online": online, "disabled": known.disabled}

    def keep(self) -> None:
        """Write the file at regular intervals, as long as the process runs."""
        while True:
            with suppress(OSError):  # a full disk does not end the coordinator
                write_json(self._kit / "online.json", self.state())
            time.sleep(EVERY)
