"""Hardening: a kit allows NVIDIA FLARE far less than its defaults do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedspan.engines.members.enrolment import ROLES, RUNNER

#: A site that was silent for this number of seconds is no longer registered; it sends a heartbeat more often.
SILENT_AFTER = 12
HEARTBEAT = 2

_SERVER = "fedspan.engines.nvflare.server"
_RIGHTS = ["submit_job", "clone_job", "manage_job", "download_job", "operate", "shell_commands", "byoc", "app_command"]
_VIEW_ONLY = {"view": "any", **dict.fromkeys(_RIGHTS, "none")}


def authorization() -> dict[str, Any]:
    """Return the rights of each role: no role may submit a job or ship code. Calls are signed, and sites check them."""
    return {"format_version": "1.0", "permissions": dict.fromkeys((*ROLES, RUNNER), _VIEW_ONLY)}


def server_resources(kit: Path) -> dict[str, Any]:
    """Return the server's own settings: its job store and its snapshots stay inside the kit."""
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    persistor = "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    scheduler = "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler"
    launcher = "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher"
    snapshots = {"root_dir": str(kit / "store" / "snapshots"), "uri_root": "/"}
    transfer = {"admin_storage": "transfer", "admin_timeout": 10.0}
    jobs = {"uri_root": str(kit / "store" / "jobs"), "job_store_id": "job_store"}
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [],  # of what a job may name: there are no jobs
        "servers": [{**transfer, "max_num_clients": 1000, "heart_beat_timeout": SILENT_AFTER}],
        "snapshot_persistor": {
            "path": persistor,
            "args": {"uri_root": "/", "storage": {"path": storage, "args": snapshots}},
        },
        "components": [
            {"id": "job_scheduler", "path": scheduler, "args": {"max_jobs": 1, "min_schedule_interval": 60.0}},
            {"id": "job_manager", "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", "args": jobs},
            {"id": "job_store", "path": storage},
            {"id": "process_launcher", "path": launcher, "args": {}},
            {"id": "fedspan_hub", "path": f"{_SERVER}.hub.HubComponent", "args": {}},
            {"id": "fedspan_studies", "path": f"{_SERVER}.study_queue.StudyQueueComponent", "args": {}},
        ],
    }


def site_resources() -> dict[str, Any]:
    """Return a site's own settings."""
    manager = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    none = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 30}
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {"id": "resource_manager", "path": manager, "args": none},
            {"id": "resource_consumer", "path": consumer, "args": {}},
            {"id": "process_launcher", "path": launcher, "args": {}},
            {"id": "fedspan_link", "path": "fedspan.engines.nvflare.site.site_link.SiteLinkComponent", "args": {}},
        ],
    }


def logging_settings() -> dict[str, Any]:
    """Return the log of a server or site: a file in the kit, and critical errors on the console."""
    form = {
        "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
        "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s",
    }
    file = {
        "class": "logging.handlers.RotatingFileHandler",
        "level": "INFO",
        "formatter": "plain",
        "filename": "log.txt",
        "mode": "a",
        "maxBytes": 4_194_304,
        "backupCount": 3,
    }
    console = {"class": "fedspan.engines.nvflare.setup.console_events.ConsoleHandler", "level": "CRITICAL"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": form},
        "handlers": {"file": file, "console": console},
        "loggers": {"root": {"level": "INFO", "handlers": ["file", "console"]}},
    }
