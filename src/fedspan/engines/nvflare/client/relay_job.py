"""The relay as a job: three JSON files that name classes which are installed everywhere. No code travels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Seconds in which all sites of a relay must have started their processes.
SYNC_LIMIT = 40


def write_relay_job(folder: Path, sites: Iterable[str]) -> Path:
    """Write a job that runs the relay for `sites` into `folder`, and return its own folder."""
    job = folder / "fedspan-relay"
    config = job / "app" / "config"
    config.mkdir(parents=True)
    names = sorted(sites)
    meta = {
        "name": "fedspan-relay",
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": ["server", *names]},
    }
    _write(job / "meta.json", meta)
    _write(config / "config_fed_server.json", _server())
    _write(config / "config_fed_client.json", _client())
    return job


def _server() -> dict[str, Any]:
    controller = "nvflare.collab.runtime.controller.CollabController"
    args = {"server_obj_id": "relay", "sync_task_timeout": SYNC_LIMIT, "max_call_threads": 256}
    return {
        "format_version": 2,
        "task_request_interval": 0.2,
        "workflows": [{"id": "controller", "path": controller, "args": args}],
        "components": [{"id": "relay", "path": "fedspan.engines.nvflare.server.relay.Relay", "args": {}}],
    }


def _client() -> dict[str, Any]:
    executor = "nvflare.collab.runtime.executor.CollabExecutor"
    args = {"client_obj_id": "site", "max_call_threads": 16}
    return {
        "format_version": 2,
        "default_task_fetch_interval": 0.2,
        "executors": [{"tasks": ["*"], "executor": {"id": "executor", "path": executor, "args": args}}],
        "components": [{"id": "site", "path": "fedspan.engines.nvflare.site.site_app.SiteApp", "args": {}}],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
