"""The curves of a job, read back from the files with TensorBoard's own reader and from a store of MLflow."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.metric_export import NotWritten
from gavel.cli.metric_following import Export, targets
from gavel.client import Client, Job, JobMetrics
from gavel.types import JobState, MetricPoint
from tests.api.conftest import NOW_S, Service, service, wait_until
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


@pytest.mark.full
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
    files = sorted((tmp_path / "runs" / job_id).iterdir())
    assert CliRunner().invoke(app, command, env=environment).exit_code == 0
    assert sorted((tmp_path / "runs" / job_id).iterdir()) == files, "nothing was new"
    shown = CliRunner().invoke(app, command[:3], env=environment | {"GAVEL_TENSORBOARD_DIR": str(tmp_path / "other")})
    assert "loss" in shown.output and not (tmp_path / "other").exists(), "the place of an export is nothing to it"
    (tmp_path / "runs" / job_id / "gavel.json").write_text("{")
    refused = CliRunner().invoke(app, command, env=environment)
    assert refused.exit_code == 2 and "is damaged" in refused.output
    (tmp_path / "runs" / job_id / "gavel.json").unlink()
    refused = CliRunner().invoke(app, command, env=environment)
    assert refused.exit_code == 2 and "has files already" in refused.output


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


def reported(service: Service, job_id: str, step: int, loss: float, at_s: float) -> None:
    job = replace(service.store.job(job_id), state=JobState.LEASED, started_at_s=NOW_S)
    point = MetricPoint(
        job_id=job_id,
        generation=1,
        accelerator_type="fast",
        previous_step=step - 1,
        step=step,
        at_s=at_s,
        values={"loss": loss},
    )
    service.change(job, metric_points=(point,))


def losses(folder: Path) -> list[list[float]]:
    return [values[:2] for values in read(READ_TENSORBOARD, str(folder))["loss"]]


@needs("tensorboardX", "tensorboard")
def test_an_export_follows_each_job_to_its_end(service: Service, tmp_path: Path) -> None:
    name, ann = service.user()
    submit = {"argv": ["x"], "total_steps": 10_000}
    job_id, waits = (str(ann.post("/v1/jobs", json=submit).json()["id"]) for _ in range(2))
    with Client(service.url, service.token(name)) as client:
        export = Export(client, targets(tmp_path, None))
        export.look()
        assert not list(tmp_path.iterdir()), "nobody has reported"
        for step in (1, 2):
            reported(service, job_id, step, 1 / step, NOW_S + step)
            export.look()
            export.look()
        assert losses(tmp_path / job_id) == [[1, 1.0], [2, 0.5]]
        reported(service, job_id, 3, 0.25, NOW_S + 3)
        job = replace(service.store.job(job_id), state=JobState.COMPLETED, finished_at_s=NOW_S + 3)
        service.change(job)
        begun = Export(client, targets(tmp_path, None))  # as after a restart
        for each in (export, begun):
            each.look()
            assert each.unwritten == {waits}, "what has ended is done"
    assert losses(tmp_path / job_id) == [[1, 1.0], [2, 0.5], [3, 0.25]]


def test_what_cannot_be_written_is_told_and_written_later(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, ann = service.user()
    job_id = str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 10_000}).json()["id"])
    reported(service, job_id, 1, 1.0, NOW_S)
    written: list[str] = []

    def target(job: Job, curves: JobMetrics) -> str:
        if not written:
            written.append("")
            raise NotWritten("the server is away")
        written.append(job["id"])
        return ""

    with Client(service.url, service.token(name)) as client:
        export = Export(client, [target])
        export.look()
        assert "the server is away; trying again" in capsys.readouterr().err
        export.look()
        assert written == ["", job_id]
    with Client("http://127.0.0.1:9", "none") as client:
        Export(client, [target]).look()
        assert "trying again" in capsys.readouterr().err, "a service that does not answer may come back"


@needs("tensorboardX")
def test_the_command_runs_until_it_is_interrupted(service: Service, tmp_path: Path) -> None:
    name, ann = service.user()
    job_id = str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 10_000}).json()["id"])
    reported(service, job_id, 1, 1.0, NOW_S)
    environment = os.environ | {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token(name)}
    command = [sys.executable, "-m", "gavel.cli", "export-metrics", "--tensorboard", str(tmp_path), "--every", "0.1"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until((tmp_path / job_id / "gavel.json").exists)
        finally:
            process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed) == (0, "")


def test_an_export_to_nowhere_is_refused(service: Service) -> None:
    refused = CliRunner().invoke(app, ["export-metrics"], env={"GAVEL_URL": service.url, "GAVEL_TOKEN": "none"})
    assert refused.exit_code == 2 and "--tensorboard DIR or --mlflow URI" in refused.output
