"""``python -m fedspan``: the command line."""

import sys

from fedspan.cli import main

sys.exit(main())
