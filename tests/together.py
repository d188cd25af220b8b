"""Which tests one process runs, because they share something: a file its fixtures, some files more than that.

pytest-xdist has marks for it, which pytest 9.2 does not pass on to the process that hands out the tests. That process
knows names alone, and so do these rules.
"""

from __future__ import annotations

#: In the order in which they begin: those that take longest come first.
GROUPS = {
    "one federation over NVIDIA FLARE": (
        "tests/engines/nvflare/test_commands.py",
        "tests/engines/nvflare/test_kills.py",
        "tests/engines/nvflare/test_refusals.py",
        "tests/engines/nvflare/test_same_bits.py",
    ),
    "MNIST, the models of reports, and UMAP, which is compiled when it is first used": (
        "tests/estimators/test_maps_real.py",
        "tests/privacy/test_audit.py",
        "tests/privacy/test_paper_noise_real.py",
        "tests/privacy/test_private_map_real.py",
        "tests/report/test_report_browser.py",
        "tests/report/test_report_estimators.py",
    ),
    "tables of network traffic": (
        "tests/datasets/test_loaders_real.py",
        "tests/anomaly/test_pca_detector_real.py",
        "tests/estimators/test_tabular_real.py",
        "tests/protocols/test_fedpg_unsw.py",
        "tests/secure/test_secure_real.py",
    ),
}
ORDER = list(GROUPS)
BY_FILE = {file: group for group, files in GROUPS.items() for file in files}


def group_of(name: str) -> str:
    """Return the group of a test by its full name: that of its file, or the file itself."""
    if "UMAP" in name or "federated_map" in name:
        return ORDER[1]
    file = name.partition("::")[0]
    return BY_FILE.get(file, file)
