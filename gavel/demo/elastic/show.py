"""What the demo of elastic jobs prints at its end: each job in both runs, what changes of size cost, and checks."""

import statistics
from collections.abc import Iterator

import numpy as np
from rich.table import Table

from gavel.demo.elastic.runs import Ran, Trained
from gavel.demo.elastic.workload import RIGID_SIZE

SAME_LOSS = 1e-9  # of a loss: what another order of the sums may change
WANTED_PART, WANTED_CHANGE_S = 0.8, 2.0


def jobs_table(rigid: Ran, elastic: Ran) -> Table:
    """A row for each job: when it came, how long it took in both runs, and the sizes that its gang had."""
    table = Table(title="Seconds from submission to end", title_justify="left")
    table.add_column("job")
    for column in ("came at s", "steps", f"always {RIGID_SIZE}", "elastic"):
        table.add_column(column, justify="right")
    table.add_column("sizes, one after another")
    table.add_column("losses differ by", justify="right")
    first_s = elastic.trained[0].submitted_at_s
    for one, other in zip(rigid.trained, elastic.trained, strict=True):
        table.add_row(
            other.name,
            f"{other.submitted_at_s - first_s:.0f}",
            str(len(other.curve)),
            f"{one.jct_s:.1f}",
            f"{other.jct_s:.1f}",
            ", ".join(str(size) for size, _, _ in other.sizes),
            f"{difference(one, other):.0e}",
        )
    return table


def difference(one: Trained, other: Trained) -> float:
    """Return the largest difference between the losses of a step, as a part of the loss; 1 if steps lack."""
    if len(one.curve) != len(other.curve):
        return 1.0
    return float(np.max(np.abs(one.losses - other.losses) / np.abs(one.losses)))


def notes(rigid: Ran, elastic: Ran) -> Iterator[str]:
    """Yield the figures, and what of them is wanted."""
    part = elastic.mean_jct_s / rigid.mean_jct_s
    yield (
        f"Mean time to completion: {rigid.mean_jct_s:.1f} s with {RIGID_SIZE} workers each, {elastic.mean_jct_s:.1f} s "
        f"elastic, {part:.2f} of it ({WANTED_PART} or less is wanted)."
    )
    changes_s = changes_of(elastic)
    if changes_s:
        yield (
            f"A change of size kept its job from training for {statistics.median(changes_s):.2f} s (median of "
            f"{len(changes_s)}, the longest {max(changes_s):.2f} s; less than {WANTED_CHANGE_S:g} s is wanted)."
        )


def changes_of(elastic: Ran) -> list[float]:
    """Return the seconds that each change of size of a run cost."""
    return [each for job in elastic.trained for each in job.changes_s]


def checks(rigid: Ran, elastic: Ran, submitted: int) -> Iterator[tuple[bool, str]]:
    """Yield each check as (whether it holds, a sentence with its figures)."""
    for title, run in (("rigid", rigid), ("elastic", elastic)):
        yield len(run.trained) == submitted, f"{title}: {len(run.trained)} of {submitted} jobs completed"
        yield not run.left, f"{title}: no process is left" + "".join(f"; {each}" for each in run.left)
    if not len(rigid.trained) == len(elastic.trained) == submitted:
        return
    yield elastic.mean_jct_s < rigid.mean_jct_s, "elastic jobs take less time in the mean"
    count = len(changes_of(elastic))
    yield bool(count), f"gangs changed their size {count} times"
    most = max(difference(*pair) for pair in zip(rigid.trained, elastic.trained, strict=True))
    yield most <= SAME_LOSS, f"the losses of a step differ by {most:.0e} of it at most"
