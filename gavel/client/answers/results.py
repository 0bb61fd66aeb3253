"""What the API answers about results.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict


class JobMetrics(TypedDict):
    """The metrics that a job has reported, in columns of equal length, by step; `values` has a column for each name."""

    names: list[str]
    steps: list[int]
    at_s: list[float]
    generations: list[int]  # Of the gang that reported it: it grows with each launch.
    accelerator_types: list[str]  # The type that the gang ran on.
    values: dict[str, list[float | None]]  # Null: this report had no value of that name.


class RankUtilization(TypedDict):
    """What one rank used with its child processes, in columns of equal length, by time."""

    rank: int
    at_s: list[float]
    generations: list[int]  # Of the gang: it grows with each launch.
    cpu_cores: list[float]  # Mean number of CPU cores since the sample before.
    memory_bytes: list[int]  # Resident memory; what processes share counts for each.
    # Part of the time, from 0 to 1, in which its accelerator was busy since the sample before; null: not known.
    accelerator_busy: list[float | None]
    accelerator_memory_bytes: list[int | None]  # Memory in use there, of all processes.


class JobUtilization(TypedDict):
    """What the processes of a job used. No ranks: there is no sample, as on a Ray cluster."""

    ranks: list[RankUtilization]


class JobFile(TypedDict):
    """A file in a job's output folder."""

    path: str
    size_bytes: int
    modified_at_s: float


class JobFiles(TypedDict):
    """The files of a job's output folder, sorted by path."""

    items: list[JobFile]
    total_bytes: int
    limit_bytes: int  # A job whose folder grows beyond it fails; 0: any size is allowed.
    left_out: int  # Links, pipes and the like, and names that are no UTF-8: they are not shown.
    is_cut: bool  # There are more files: the folder is shown up to 10,000 entries.
    kept_until_s: float | None  # When the folder may be deleted; null while the job lives.


class Checkpoint(TypedDict):
    """A checkpoint of a job, written by the gang `generation` after `step` steps."""

    name: str
    generation: int
    step: int
    size_bytes: int
    written_at_s: float
    is_accepted: bool  # The job goes on from this one.


class WrittenCheckpoint(TypedDict):
    """An accepted checkpoint as its program measured it, kept or not; null: it did not measure that."""

    name: str
    step: int
    at_s: float  # When it was accepted.
    size_bytes: int | None
    written_s: float | None  # Until it was on the disk.
    cost_s: float | None  # For so long of it the training stood still.
    every_s: float | None  # Until the next one for safety.
    # Mean seconds until a gang of its size is lost, from which `every_s` was chosen; null: stated.
    time_to_loss_s: float | None


class Checkpoints(TypedDict):
    """The checkpoints of a job that are kept, the newest first."""

    items: list[Checkpoint]
    accepted: str | None  # Its name; null: the job begins at step 0.
    written: list[WrittenCheckpoint]  # The newest five that were accepted, the newest first.


class CodeDiff(TypedDict):
    """How a job's code differs from its commit."""

    commit: str
    text: str  # As `git diff` writes it, with *** for the user's secrets; empty: it does not differ.
    is_cut: bool  # It is longer; its last line says so.


class Purged(TypedDict):
    """A job that was purged."""

    id: str
    freed_bytes: int  # The size of its files on the disk of the service.
