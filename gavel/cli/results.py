"""Commands about what jobs leave: `gavel job metrics`."""

from typing import Annotated

import typer
from rich.console import RenderableType

from gavel.cli import show
from gavel.cli.connection import Json, connect
from gavel.cli.jobs import job_commands
from gavel.cli.resolving import JobId
from gavel.cli.table import Rows
from gavel.client import JobMetrics

Points = Annotated[int, typer.Option(min=2, max=1001, help="Most points, evenly chosen, the first and last included.")]


@job_commands.command()
def metrics(job_id: JobId, points: Points = 20, as_json: Json = False) -> None:
    """Show the metrics that a job has reported, by step: gavel job metrics ID --points 1000 --json"""
    with connect() as client:
        show.answer(client.job_metrics(job_id, points=points), as_json, _metrics)


def _metrics(curves: JobMetrics) -> RenderableType:
    rows = Rows("STEP", "AT", "TYPE", "LEASE", *curves["names"])
    columns = (curves["steps"], curves["at_s"], curves["accelerator_types"], curves["generations"])
    for index, (step, at_s, accelerator_type, generation) in enumerate(zip(*columns, strict=True)):
        values = (curves["values"][name][index] for name in curves["names"])
        rows.add_row(
            f"{step:,}",
            show.instant(at_s),
            accelerator_type,
            str(generation),
            *("" if value is None else f"{value:.5g}" for value in values),
        )
    return rows
