"""One process of the battery: ``python -m benchmarks.battery NAME FILE`` leaves what a module finds in a file."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.battery.running import alone

if __name__ == "__main__":
    alone(sys.argv[1]).save(Path(sys.argv[2]))
