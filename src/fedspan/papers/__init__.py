"""The papers' tables and figures, ours beside theirs: one module per paper, each with ``run(quick) -> Results``."""
