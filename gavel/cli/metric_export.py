"""Writes the metrics of a job for other tools: TensorBoard event files, a run of an MLflow server."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gavel.cli.connection import fail
from gavel.client import Job, JobMetrics

if TYPE_CHECKING:
    from mlflow import MlflowClient

POINTS = 1001  # all that the service keeps of a job
JOB_TAG = "gavel.job_id"
BATCH = 1000  # most metrics that MLflow takes at once
END_STATES = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "KILLED"}


def values_of(curves: JobMetrics) -> Iterator[tuple[str, float, int, float]]:
    """Yield name, value, step and instant of every value that was reported."""
    for name in curves["names"]:
        columns = zip(curves["values"][name], curves["steps"], curves["at_s"], strict=True)
        yield from ((name, value, step, at_s) for value, step, at_s in columns if value is not None)


def write_tensorboard(job: Job, curves: JobMetrics, directory: Path) -> Path:
    """Write the curves into a folder of the job's own below `directory`; return it. End the command if it has files."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        fail("--tensorboard needs tensorboardX: pip install 'gavel[tensorboard]'")
    folder = directory / job["id"]
    if folder.exists() and any(folder.iterdir()):
        fail(f"--tensorboard: {folder} has files already; remove it, or name another folder")
    with SummaryWriter(str(folder)) as writer:
        for name, value, step, at_s in values_of(curves):
            writer.add_scalar(name, value, step, walltime=at_s)
    return folder


def write_mlflow(job: Job, curves: JobMetrics, tracking_uri: str) -> str:
    """Write the curves into the job's run at an MLflow server; return the run's id.

    A run that is there already gets the steps that it lacks. The experiment is named by the job's kind.
    """
    try:
        from mlflow import MlflowClient, MlflowException
        from mlflow.entities import Metric
    except ImportError:
        fail("--mlflow needs mlflow: pip install 'gavel[mlflow]'")
    try:
        client = MlflowClient(tracking_uri=tracking_uri)
        run_id, last_step = _run_of(client, job, curves["names"])
        metrics = [
            Metric(_key(name), value, round(at_s * 1000), step)
            for name, value, step, at_s in values_of(curves)
            if step > last_step
        ]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + BATCH])
        _close(client, job, run_id)
    except MlflowException as error:
        fail(f"--mlflow {tracking_uri}: {error.message}")
    return run_id


def _run_of(client: "MlflowClient", job: Job, names: list[str]) -> tuple[str, int]:
    """Return the id of the job's run, which is made if there is none, and the last step that it has."""
    named = client.get_experiment_by_name(job["kind"])
    experiment = named.experiment_id if named else client.create_experiment(job["kind"])
    runs = client.search_runs([experiment], f"tags.`{JOB_TAG}` = '{job['id']}'", max_results=1)
    if runs:
        run_id: str = runs[0].info.run_id
        steps = [each.step for name in names for each in client.get_metric_history(run_id, _key(name))]
        return run_id, max(steps, default=-1)
    began_ms = round((job["started_at_s"] or job["submitted_at_s"]) * 1000)
    tags = {JOB_TAG: job["id"], **{f"label.{name}": value for name, value in job["labels"].items()}}
    run = client.create_run(experiment, start_time=began_ms, tags=tags, run_name=job["name"] or job["id"])
    for name, value in _parameters(job).items():
        client.log_param(run.info.run_id, name, value)
    return run.info.run_id, -1


def _parameters(job: Job) -> dict[str, Any]:
    facts = {"program": " ".join(job["argv"]), "user": job["user"], "tier": job["tier"]}
    return {**facts, "scale_factor": job["scale_factor"], "total_steps": job["total_steps"]}


def _close(client: "MlflowClient", job: Job, run_id: str) -> None:
    if job["finished_at_s"] is not None:
        client.set_terminated(run_id, END_STATES[job["state"]], round(job["finished_at_s"] * 1000))


def _key(name: str) -> str:
    """Return a metric's name with what MLflow refuses replaced by `_`."""
    return "".join(each if each.isalnum() or each in "_-. /" else "_" for each in name)
