"""The socket between a site's own processes."""

from __future__ import annotations

from fedspan.engines.nvflare.site.worker_socket import socket_path


def test_the_socket_of_a_deep_kit_has_a_relative_path(tmp_path, monkeypatch):
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert socket_path(deep) == "worker.sock"
