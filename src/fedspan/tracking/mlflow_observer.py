"""Runs in MLflow: parameters, metrics by call, how the run ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import RunRecord
from fedspan.federation.outcomes import EndingKind
from fedspan.tracking.run_tracker import RunTracker, settings_of


class MlflowObserver(RunTracker):
    """Makes one MLflow run of each run (see `mlflow_observer`)."""

    def __init__(self, client: Any, experiment: str, parent: str | None) -> None:
        super().__init__()
        self._client = client
        self._experiment = experiment
        self._parent = parent
        self.runs: list[str] = []

    def begin(self, record: RunRecord) -> None:
        """Begin a run with its parameters."""
        from mlflow.entities import Param

        tags = {"fedspan.run": str(record.number), "fedspan.simulated": str(record.simulated)}
        if self._parent is not None:
            tags["mlflow.parentRunId"] = self._parent
        made = self._client.create_run(self._experiment, run_name=f"{record.what} {record.number}", tags=tags)
        self.runs.append(made.info.run_id)
        parameters = [Param(name, value) for name, value in settings_of(record).items()]
        self._client.log_batch(self.runs[-1], params=parameters)

    def send(self, numbers: Mapping[str, float], step: int) -> None:
        """Send some numbers."""
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self.runs[-1], metrics=[Metric(name, x, now, step) for name, x in numbers.items()])

    def end(self, record: RunRecord) -> None:
        """End the run: finished, failed or interrupted, with the reason as a tag."""
        statuses = {EndingKind.FAILED: "FAILED", EndingKind.INTERRUPTED: "KILLED"}
        self._client.set_tag(self.runs[-1], "fedspan.stopped", str(record.stopped)[:4000])
        self._client.set_terminated(self.runs[-1], statuses.get(record.stopped.kind, "FINISHED"))


def mlflow_observer(experiment: str = "fedspan", *, tracking_uri: str | None = None) -> MlflowObserver:
    """Return an observer that sends every run to MLflow (extra ``tracking``).

    Parameters
    ----------
    experiment : str, default="fedspan"
        The experiment's name. It is made where it does not exist.
    tracking_uri : str, optional
        The server, or the database, which needs the whole package ``mlflow``. Default: MLflow's own setting.

    Returns
    -------
    MlflowObserver
        For ``fed.observe``. Within ``mlflow.start_run()`` the runs are children of that run. ``runs`` lists their ids.

    Notes
    -----
    Sends parameters, the numbers that protocols log, bytes, seconds, failed replies, and how the run ended: no rows and
    no replies. If the server fails, a warning states it, and the run continues.
    """
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise MissingPackageError("mlflow_observer needs MLflow: pip install '.[tracking]' in a checkout") from None
    try:
        client = mlflow.MlflowClient(tracking_uri)
        found = client.get_experiment_by_name(experiment)
        identity = client.create_experiment(experiment) if found is None else found.experiment_id
    except ImportError as error:
        raise MissingPackageError(
            f"MLflow keeps its runs in a database, which needs the package {error.name!r}: pip install mlflow, or name "
            "a server, such as tracking_uri='http://localhost:5000'"
        ) from None
    except (MlflowException, OSError) as error:
        raise InputError(f"MLflow does not open the experiment {experiment!r}: {error}") from None
    active = mlflow.active_run()
    return MlflowObserver(client, identity, None if active is None else active.info.run_id)
