"""Runs in TensorBoard: one folder of events for each run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import RunRecord
from fedspan.tracking.run_tracker import RunTracker, settings_of


class TensorboardObserver(RunTracker):
    """Writes the events of each run to a folder of its own (see `tensorboard_observer`)."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._writer: Any = None

    def begin(self, record: RunRecord) -> None:
        """Begin a file of events with the settings as text."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        name = re.sub(r"[^\w.-]+", "-", record.what)[-60:]
        self._writer = EventFileWriter(str(self._folder / f"run-{record.number:03d}-{name}"))
        table = "\n".join(f"| {key} | {value} |" for key, value in settings_of(record).items())
        text = f"| setting | value |\n|---|---|\n{table}".encode()
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text])
        self._write([Summary.Value(tag="settings", metadata=plugin, tensor=tensor)], 0)

    def send(self, numbers: Mapping[str, float], step: int) -> None:
        """Write some numbers."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write([Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()], step)

    def end(self, record: RunRecord) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, values: list[Any], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))


def tensorboard_observer(folder: str | os.PathLike[str]) -> TensorboardObserver:
    """Return an observer that writes every run for TensorBoard (extra ``tracking``).

    Parameters
    ----------
    folder : path
        What ``tensorboard --logdir`` reads. Each run has a folder below it.

    Notes
    -----
    Writes what `mlflow_observer` sends. Neither TensorFlow nor PyTorch is needed.
    """
    try:
        import tensorboard.summary.writer.event_file_writer  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "tensorboard_observer needs TensorBoard: pip install '.[tracking]' in a checkout"
        ) from None
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"folder={str(folder)!r} is a file, and TensorBoard reads folders")
    return TensorboardObserver(path)
