"""The process of a detached study, at the coordinator: ``python -m fedspan.cli.study.detached_study KIT STUDY``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from fedspan.cli.study.progress_file import ProgressFile
from fedspan.cli.study.run_command import run_study
from fedspan.cli.study.study_file import read_study
from fedspan.engines.members.enrolment import RUNNER
from fedspan.engines.nvflare.client.connect import connect_as
from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.identity import Authority, Delegate, Identity
from fedspan.errors import FedspanError


def main() -> int:
    """Run a study in the name of the user that submitted it, or continue it."""
    die_with_parent()
    warnings.simplefilter("ignore")
    kit, folder = Path(sys.argv[1]), Path(sys.argv[1]) / "studies" / sys.argv[2]

    def connect() -> RemoteFederation:
        authority = Authority.from_kit(kit)
        delegate = Delegate(Identity.from_kit(kit), (folder / "delegation").read_bytes(), authority)
        return connect_as(delegate, authority, kit / RUNNER, study.seed, study.policy, study.output)

    try:
        study = read_study(folder / "study.toml", folder / "results", at_sites=True, detached=True)
        run_study(study, resume=True, connect=connect, observer=ProgressFile(folder / "progress.json"))
    except FedspanError as error:
        print(error, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
