"""The curves of a job, read back from the files with TensorBoard's own reader and from a store of MLflow."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from tests.api.conftest import NOW_S, Service, service
from tests.api.test_job_metrics import a_job_with

__all__ = ["service"]

MLFLOW = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
READ_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
values = {tag: [[each.step, each.value, each.wall_time] for each in scalars[tag]] for tag in scalars}
print(json.dumps(values))
"""
READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
loss = [[each.step, each.value, each.timestamp] for each in client.get_metric_history(run.info.run_id, "loss")]
print(json.dumps({"loss": loss, "params": run.data.params, "tags": run.data.tags, "status": run.info.status}))
"""


def read(program: str, place: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", program, place]
    ran = subprocess.run(command, env=MLFLOW, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [each for each in modules if importlib.util.find_spec(each) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed here: {', '.join(missing)}")


@needs("tensorboardX", "tensorboard")
def test_tensorboard_reads_every_value_with_its_step_and_time(service: Service, tmp_path: Path) -> None:
    name, ann = service.user()
    job_id = a_job_with(service, ann, {"loss": 2.0}, {"loss": 1.0, "error": 0.5})
    environment = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token(name)}
    command = ["job", "metrics", job_id, "--tensorboard", str(tmp_path / "runs")]
    written = CliRunner().invoke(app, command, env=environment)
    assert written.exit_code == 0, written.output
    assert read(READ_TENSORBOARD, str(tmp_path / "runs" / job_id)) == {
        "loss": [[1, 2.0, NOW_S], [2, 1.0, NOW_S + 1]],
        "error": [[2, 0.5, NOW_S + 1]],
    }
    again = CliRunner().invoke(app, command, env=environment)
    assert again.exit_code == 2 and "has files already" in again.output


@needs("mlflow")
@pytest.mark.skipif(not IS_FULL, reason="MLflow takes long to load: with GAVEL_TEST_PROFILE=full")
def test_an_mlflow_run_has_parameters_metrics_at_steps_and_gets_what_it_lacks(service: Service, tmp_path: Path) -> None:
    name, ann = service.user()
    job_id = a_job_with(service, ann, {"loss": 2.0}, {"loss": 1.0})
    environment = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token(name), **MLFLOW}
    command = [sys.executable, "-W", "ignore", "-m", "gavel.cli"]
    command += ["job", "metrics", job_id, "--mlflow", f"file://{tmp_path}/runs"]
    ids = set()
    for _ in range(2):
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert ran.returncode == 0, ran.stderr
        ids.add(ran.stdout.split()[-1])
    assert len(ids) == 1
    run = read(READ_MLFLOW, f"file://{tmp_path}/runs")
    assert run["loss"] == [[1, 2.0, NOW_S * 1000], [2, 1.0, (NOW_S + 1) * 1000]]
    assert run["params"]["program"] == "x" and run["tags"]["gavel.job_id"] == job_id
    assert run["status"] == "RUNNING"
