"""Writes the metrics of a job for other tools: TensorBoard event files, a run of an MLflow server.

Said again, both get the points that they lack, by the instant of the report.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gavel.client import Job, JobMetrics

if TYPE_CHECKING:
    from mlflow import MlflowClient

POINTS = 1001  # all that the service keeps of a job
JOB_TAG = "gavel.job_id"
MARK = "gavel.json"  # beside the event files of a job: the instant of the last point in them
HALF_MS = 0.0005  # instants are rounded to milliseconds there
BATCH = 1000  # most metrics that MLflow takes at once
END_STATES = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "KILLED"}


class NotWritten(Exception):
    """The curves could not be written; the text says why, and what cures it."""


def values_of(curves: JobMetrics, after_s: float) -> Iterator[tuple[str, float, int, float]]:
    """Yield name, value, step and instant of every value that was reported after an instant."""
    for name in curves["names"]:
        columns = zip(curves["values"][name], curves["steps"], curves["at_s"], strict=True)
        yield from ((name, value, step, at_s) for value, step, at_s in columns if value is not None and at_s > after_s)


def write_tensorboard(job: Job, curves: JobMetrics, directory: Path) -> Path:
    """Write what is new of the curves into a folder of the job's own below `directory`; return it.

    Raise NotWritten if the folder has files that are not of this function, and OSError.
    """
    from tensorboardX import SummaryWriter

    folder = directory / job["id"]
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise NotWritten(f"--tensorboard: {folder} has files already; remove it, or name another folder")
    try:
        last_at_s = float(json.loads(mark.read_text())["last_at_s"]) if mark.exists() else 0.0
    except (ValueError, TypeError, KeyError):
        raise NotWritten(f"--tensorboard: {mark} is damaged; remove {folder}, and it is written anew") from None
    new = list(values_of(curves, last_at_s))
    if new:
        last_at_s = max(at_s for _, _, _, at_s in new)
        with SummaryWriter(str(folder), filename_suffix=f".{_ms(last_at_s)}") as writer:  # two in a second: two files
            for name, value, step, at_s in new:
                writer.add_scalar(name, value, step, walltime=at_s)
        (folder / f"{MARK}.tmp").write_text(json.dumps({"last_at_s": last_at_s}))
        os.replace(folder / f"{MARK}.tmp", mark)
    return folder


def write_mlflow(job: Job, curves: JobMetrics, tracking_uri: str) -> str:
    """Write the curves into the job's run at an MLflow server; return the run's id.

    The experiment is named by the job's kind. Raise NotWritten if the server refuses or does not answer.
    """
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import Metric

    try:
        client = MlflowClient(tracking_uri=tracking_uri)
        run_id, last_at_s = _run_of(client, job, curves["names"])
        metrics = [
            Metric(_key(name), value, _ms(at_s), step) for name, value, step, at_s in values_of(curves, last_at_s)
        ]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + BATCH])
        _close(client, job, run_id)
    except MlflowException as error:
        raise NotWritten(f"--mlflow {tracking_uri}: {error.message}") from error
    return run_id


def _run_of(client: "MlflowClient", job: Job, names: list[str]) -> tuple[str, float]:
    """Return the id of the job's run, which is made if there is none, and the instant of the last point that it has."""
    named = client.get_experiment_by_name(job["kind"])
    experiment = named.experiment_id if named else client.create_experiment(job["kind"])
    runs = client.search_runs([experiment], f"tags.`{JOB_TAG}` = '{job['id']}'", max_results=1)
    if runs:
        run_id: str = runs[0].info.run_id
        stamps = [each.timestamp for name in names for each in client.get_metric_history(run_id, _key(name))]
        return run_id, max(stamps, default=0) / 1000 + HALF_MS
    began_ms = _ms(job["started_at_s"] or job["submitted_at_s"])
    tags = {JOB_TAG: job["id"], **{f"label.{name}": value for name, value in job["labels"].items()}}
    run = client.create_run(experiment, start_time=began_ms, tags=tags, run_name=job["name"] or job["id"])
    for name, value in _parameters(job).items():
        client.log_param(run.info.run_id, name, value)
    return run.info.run_id, 0.0


def _parameters(job: Job) -> dict[str, Any]:
    facts = {"program": " ".join(job["argv"]), "user": job["user"], "tier": job["tier"]}
    return {**facts, "scale_factor": job["scale_factor"], "total_steps": job["total_steps"]}


def _close(client: "MlflowClient", job: Job, run_id: str) -> None:
    if job["finished_at_s"] is not None:
        client.set_terminated(run_id, END_STATES[job["state"]], _ms(job["finished_at_s"]))


def _ms(at_s: float) -> int:
    return round(at_s * 1000)


def _key(name: str) -> str:
    """Return a metric's name with what MLflow refuses replaced by `_`."""
    return "".join(each if each.isalnum() or each in "_-. /" else "_" for each in name)
