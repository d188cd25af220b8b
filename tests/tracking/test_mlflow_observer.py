"""Runs in MLflow, in a folder of the test's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import MissingPackageError
from fedspan.tracking import mlflow_observer
from tests.packages import Late

mlflow = Late("mlflow")

X = np.random.default_rng(0).normal(size=(60, 4))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "runs").as_uri()


def test_a_fit_is_a_run_with_parameters_metrics_and_an_end(place):
    fed = fs.federate(X, sites=np.arange(60) % 3)
    observer = mlflow_observer("maps", tracking_uri=place)
    fed.observe(observer)
    model = fs.FedKMeans(3, random_state=1).fit(fs.FedStandardScaler().fit(fed).transform(fed))
    client = mlflow.MlflowClient(place)
    assert len(observer.runs) == 2
    run = client.get_run(observer.runs[1])
    assert run.info.status == "FINISHED"
    assert run.data.params["n_clusters"] == "3"
    assert run.data.params["sites"] == "3"
    assert run.data.metrics["bytes_up"] == model.run_.bytes_up
    assert run.data.tags["fedspan.stopped"] == str(model.run_.stopped)
    inertia = [one.value for one in client.get_metric_history(run.info.run_id, "inertia")]
    assert inertia == pytest.approx([value for value in model.run_.metric("inertia") if np.isfinite(value)])
    assert mlflow_observer("maps", tracking_uri=place)._experiment == observer._experiment


def test_a_failed_run_is_marked(place):
    fed = fs.federate(X, sites=np.arange(60) % 3)
    observer = mlflow_observer(tracking_uri=place)
    fed.observe(observer)
    with pytest.raises(fs.errors.InputError):
        fs.FedPCA(100).fit(fed)
    assert mlflow.MlflowClient(place).get_run(observer.runs[0]).info.status == "FAILED"


def test_a_server_that_fails_does_not_fail_the_run(place, monkeypatch):
    fed = fs.federate(X, sites=np.arange(60) % 3)
    observer = mlflow_observer(tracking_uri=place)
    fed.observe(observer)

    def broken(*_, **__):
        raise ConnectionError("no server")

    monkeypatch.setattr(observer, "send", broken)
    with pytest.warns(UserWarning, match="no server") as found:
        fs.FedPCA(2).fit(fed)
    assert len(found) == 1


def test_without_mlflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"\.\[tracking\]"):
        mlflow_observer()


def test_a_database_without_its_packages_is_a_sentence(tmp_path, monkeypatch):
    """The extra installs MLflow without what its databases need."""
    monkeypatch.setitem(sys.modules, "alembic", None)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingPackageError, match="pip install mlflow, or name a server"):
        mlflow_observer(tracking_uri=f"sqlite:///{tmp_path}/runs.db")
