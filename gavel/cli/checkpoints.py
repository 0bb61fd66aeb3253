"""What is shown of a start-up and of checkpoints: how large, how long, how often, and what that follows from."""

from collections.abc import Sequence

from gavel.client import Client, GavelApiError, Job
from gavel.client.answers import WrittenCheckpoint
from gavel.code_tree import megabytes


def written_by(client: Client, job: Job) -> Sequence[WrittenCheckpoint]:
    """Return the newest checkpoints of the job, the newest first; none while their folder cannot be read."""
    if job["checkpoint_s"] is None:
        return ()
    try:
        return client.job_checkpoints(job["id"])["written"]
    except GavelApiError:
        return ()


def measured_rows(each: Job, written: Sequence[WrittenCheckpoint] = ()) -> list[tuple[str, str]]:
    """Return what the gangs of a job have measured, each part with its name for people."""
    return [
        ("start-up", _startup(each)),
        ("checkpoints", _checkpoints(each)),
        ("checkpoint interval", reason_of_interval(each)),
        ("last checkpoints", "\n".join(map(_written, written))),
    ]


def _startup(each: Job) -> str:
    """The job's last start-up and restore, those that are known."""
    durations = (("", each["startup_s"]), ("restore ", each["restore_s"]))
    return ", ".join(f"{name}{seconds:.1f} s" for name, seconds in durations if seconds is not None)


def _checkpoints(each: Job) -> str:
    """How often the job writes a checkpoint for safety, and what its last one was; "" before the first."""
    size, took_s, every_s = each["checkpoint_bytes"], each["checkpoint_s"], each["checkpoint_every_s"]
    parts = (
        "" if size is None else megabytes(size),
        "" if took_s is None else f"written in {took_s:.1f} s",
        "" if every_s is None else f"one every {every_s:.0f} s" if every_s else "one after every step or epoch",
    )
    return ", ".join(part for part in parts if part)


def reason_of_interval(each: Job) -> str:
    """Return what the seconds from one checkpoint to the next follow from; "" where nobody knows."""
    cost_s, until_lost_s = each["checkpoint_cost_s"], each["time_to_loss_s"]
    if cost_s is None:
        return ""
    costs = f"the training stands still for {cost_s:.2g} s for one"
    if until_lost_s is None:
        return f"stated by its program; {costs}"
    return f"{costs}, and a gang of its size is lost every {until_lost_s / 3600:.3g} h"


def _written(each: WrittenCheckpoint) -> str:
    size, took_s, cost_s = each["size_bytes"], each["written_s"], each["cost_s"]
    parts = (
        each["name"],
        "" if size is None else megabytes(size),
        "" if took_s is None else f"in {took_s:.2f} s",
        "" if cost_s is None else f"of which {cost_s:.2f} s without training",
    )
    return ", ".join(part for part in parts if part)
