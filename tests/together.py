"""Which tests one process runs, because they share something: a file its fixtures, some files more than that.

pytest-xdist has marks for it, which pytest 9.2 does not pass on to the process that hands out the tests. That process
knows names alone, and so do these rules.
"""

from __future__ import annotations

#: In the order in which they begin: those that take longest come first.
GROUPS = {
    "one federation over NVIDIA FLARE": (
        "tests/engines/nvflare/test_hardening.py",
        "tests/engines/nvflare/test_nvflare_transport.py",
        "tests/engines/nvflare/test_hub_connection.py",
        "tests/engines/nvflare/test_study_client.py",
        "tests/engines/nvflare/test_members_running.py",
    ),
    "MNIST, the models of reports, and UMAP, which is compiled when it is first used": (
        "tests/audit/test_audit_run.py",
        "tests/clustering/test_spectral_real.py",
        "tests/landmarks/test_landmark_distances_real.py",
        "tests/landmarks/test_private_feddl_real.py",
        "tests/maps/test_by_centers_real.py",
        "tests/maps/test_map_estimator_real.py",
        "tests/report/test_page_browser.py",
        "tests/report/test_page_estimators.py",
    ),
    "processes that are forked, which takes longer the more a process has read": (
        "tests/laws/test_engines.py",
        "tests/engines/remote/test_step_process.py",
        "tests/engines/nvflare/test_owned_worker.py",
    ),
    "the calls of all examples, which a process makes once": (
        "tests/laws/test_hostile_parameters.py",
        "tests/laws/test_levels.py",
        "tests/laws/test_moments.py",
        "tests/laws/test_reveals.py",
        "tests/laws/test_transforms.py",
    ),
    "tables of network traffic": (
        "tests/anomaly/test_pca_detector_real.py",
        "tests/datasets/test_loaders_real.py",
        "tests/pca/test_fedpg_unsw.py",
        "tests/secure_sum/test_sum_real.py",
        "tests/tables/test_encoder_real.py",
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
