"""What the coordinator's page shows of the sites: who is registered and in which version, in a file of the kit."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.setup.kit import write_json

#: Seconds between two versions of the file; one that is much older is of a coordinator that does not run.
EVERY = 2.0


def keep_state(kit: Path, engine: Any, admittance: Admittance) -> None:
    """Write the file again and again, as long as the process runs."""
    while True:
        with suppress(OSError):  # a full disk does not end the coordinator
            write_json(kit / "online.json", state(engine, admittance))
        time.sleep(EVERY)


def state(engine: Any, admittance: Admittance) -> dict[str, Any]:
    """Return the sites that are registered, with the version of fedspan that each has stated, and who is disabled."""
    online = {str(client.name): admittance.site_versions.get(str(client.name), "") for client in engine.get_clients()}
    return {
        "when": time.time(),
        "sites": sorted(admittance.sites),
        "online": {name: online[name] for name in sorted(online) if name in admittance.sites},
        "disabled": admittance.disabled,
    }
