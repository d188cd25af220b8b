"""A site's disk: who uses it, and how long it keeps runs."""

from __future__ import annotations

import os
import stat
import time

import pytest

from fedspan.engines.remote.site import site_store
from fedspan.engines.remote.site.site_store import SiteStore
from fedspan.errors import InputError

from .test_run_file import reply


def test_a_folder_is_private_and_used_by_one_process(tmp_path):
    (tmp_path / "deep" / "a").mkdir(parents=True, mode=0o755)
    store = SiteStore(tmp_path / "deep" / "a")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    with pytest.raises(InputError, match="in use by another process"):
        SiteStore(store.folder, timeout=0.0)
    store.close()
    SiteStore(store.folder, timeout=0.0).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        SiteStore(tmp_path / "file" / "a")


def test_old_runs_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(site_store, "KEEP_DAYS", 2.0)
    store = SiteStore(tmp_path)
    for run in ("old", "new"):
        store.run(run).begin("alice", "")
    old = store.run("old").path
    os.utime(old, (time.time() - 3 * 86400,) * 2)
    store.remove_old()
    assert sorted(tmp_path.glob("*.run")) == [store.run("new").path]


def test_runs_that_rest_are_on_the_disk_only(tmp_path):
    store = SiteStore(tmp_path)
    for number in range(100):
        file = store.run(f"run {number}")
        file.begin("alice", "")
        reply(file, 0, -1, float(number))
    assert len(store._open) < 50
    assert store.run("run 3").state.pending[0][1].reply["x"].tolist() == [3.0] * 3


def test_the_secret_is_made_once(tmp_path):
    store = SiteStore(tmp_path)
    assert store.secret() == store.secret()
    assert len(store.secret()) == 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
