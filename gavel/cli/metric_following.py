"""`gavel export-metrics`: the metrics of all jobs, written for TensorBoard and MLflow while the jobs run."""

import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

import typer

from gavel.cli.connection import app, connect, fail
from gavel.cli.live import until_left
from gavel.cli.metric_export import POINTS, NotWritten, write_mlflow, write_tensorboard
from gavel.client import Client, GavelApiError, Job, JobMetrics, ServiceUnreachable

NOT_FOUND = 404
UNFINISHED = ("QUEUED", "PROFILING", "RUNNING", "PREEMPTED", "LOST", "PAUSED", "CANCELLING")
DIR = {"metavar": "DIR", "help": "Write all points as event files into a folder of the job in DIR."}
URI = {"metavar": "URI", "help": "Write all points into the job's run at an MLflow tracking URI."}
TensorBoard = Annotated[Path | None, typer.Option(**DIR)]
MLflow = Annotated[str | None, typer.Option(**URI)]
AlwaysTensorBoard = Annotated[Path | None, typer.Option("--tensorboard", envvar="GAVEL_TENSORBOARD_DIR", **DIR)]
AlwaysMLflow = Annotated[str | None, typer.Option("--mlflow", envvar="GAVEL_MLFLOW_URI", **URI)]
EveryS = Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds between two looks at the jobs.")]


class Target(Protocol):
    """A place for curves."""

    def __call__(self, job: Job, curves: JobMetrics) -> Path | str:
        """Write what is new of a job's curves; return where. Raise NotWritten, OSError."""


def targets(tensorboard: Path | None, mlflow: str | None) -> list[Target]:
    """Return what writes to the places that the options name. End the command if a package is missing."""
    chosen: list[Target] = []
    if tensorboard is not None:
        _need("tensorboardX", "tensorboard")
        chosen.append(partial(write_tensorboard, directory=tensorboard))
    if mlflow is not None:
        _need("mlflow", "mlflow")
        chosen.append(partial(write_mlflow, tracking_uri=mlflow))
    return chosen


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        fail(f"--{extra} needs {package}: pip install 'gavel[{extra}]'")


def write_once(client: Client, job: Job, chosen: list[Target]) -> list[Path | str]:
    """Write what is new of a job's curves to each place; return where. Raise NotWritten, OSError."""
    curves = client.job_metrics(job["id"], points=POINTS)
    return [write(job=job, curves=curves) for write in chosen] if curves["names"] else []


@app.command("export-metrics")
def export_metrics(tensorboard: AlwaysTensorBoard = None, mlflow: AlwaysMLflow = None, every: EveryS = 10.0) -> None:
    """Write the metrics of all jobs that you may see for TensorBoard or MLflow while they run, until Ctrl-C.

    Started again, it goes on where it ended. What cannot be written now is written later.

    gavel export-metrics --tensorboard runs

    gavel export-metrics --mlflow http://mlflow.example:5000
    """
    chosen = targets(tensorboard, mlflow)
    if not chosen:
        fail("say where to: --tensorboard DIR or --mlflow URI")
    with connect() as client, until_left():
        export = Export(client, chosen)
        while True:
            export.look()
            time.sleep(every)


class Export:
    """Keeps in mind which jobs may still report something that is not written yet."""

    def __init__(self, client: Client, chosen: list[Target]) -> None:
        self._client = client
        self._chosen = chosen
        self.unwritten: set[str] = set()  # jobs that may report more, or of which not all is written
        self._listed_to_s = 0.0  # the newest submission that was seen

    def look(self) -> None:
        """Write what is new of every job. What does not work is told on stderr, and tried at the next look."""
        try:
            jobs = dict(self._jobs())
        except (GavelApiError, ServiceUnreachable) as error:
            if isinstance(error, GavelApiError) and error.status < 500:
                raise
            return _tell(str(error))
        self.unwritten = {job_id for job_id, job in jobs.items() if not self._is_done(job)}
        self._listed_to_s = max([self._listed_to_s, *(job["submitted_at_s"] for job in jobs.values())])

    def _jobs(self) -> Iterator[tuple[str, Job]]:
        """Yield, by id, those that were not done at the last look and those that were submitted since."""
        for each in self._client.jobs():
            if each["submitted_at_s"] < self._listed_to_s:
                break
            yield each["id"], each
        unfinished = {job["id"]: job for state in UNFINISHED for job in self._client.jobs(state=state)}
        for job_id in self.unwritten:
            if job := unfinished.get(job_id) or self._job(job_id):
                yield job_id, job

    def _job(self, job_id: str) -> Job | None:
        """Return a job; None if it was deleted meanwhile."""
        try:
            return self._client.job(job_id)
        except GavelApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    def _is_done(self, job: Job) -> bool:
        """Write what is new of a job; return whether that was the end of it."""
        if job["started_at_s"] is None:
            return job["finished_at_s"] is not None
        try:
            write_once(self._client, job, self._chosen)
        except (NotWritten, OSError, GavelApiError, ServiceUnreachable) as error:
            _tell(f"job {job['id']}: {error}")
            return False
        return job["finished_at_s"] is not None


def _tell(text: str) -> None:
    typer.echo(f"gavel: {text}; trying again", err=True)
