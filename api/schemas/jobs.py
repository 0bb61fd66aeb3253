"""Jobs and their events."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from api.schemas.fields import (
    Argument,
    Kind,
    LabelKey,
    LabelValue,
    Name,
    Request,
    StepsPerSecond,
    TypeName,
    VariableName,
    VariableValue,
    View,
    example,
)


class JobSubmit(Request):
    """A job to run: a catalogue kind, or a program of your own (`argv`), or both."""

    model_config = example(
        name="first",
        argv=["python", "/home/ann/train.py"],
        total_steps=5000,
        scale_factor=1,
        tier="gold",
        weight=1.0,
        env={"SEED": "7"},
        labels={"project": "vision"},
        throughputs={"avx512": 12.5},
    )

    kind: Kind | None = Field(
        None,
        description="What determines the speed: a catalogue name, or `user/name` with your own user."
        " Default: `user/` and the job's name, or a digest of argv.",
    )
    argv: list[Argument] | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Program and arguments; never a shell line. Catalogue kinds bring theirs.",
    )
    name: Name | None = Field(None, description="For people; need not be unique.")
    total_steps: int = Field(ge=1, le=10**12, description="Training steps until the job is complete.")
    scale_factor: int = Field(
        1, ge=1, le=1024, description="Accelerators (all of one type) that the gang needs at once."
    )
    tier: Name | None = Field(None, description="One of your tiers; default: your first.")
    weight: float = Field(1.0, ge=1e-3, le=1e3, description="Relative to your other jobs in the tier.")
    deadline_at_s: float | None = Field(None, ge=0, le=1e11, description="Seconds since the Unix epoch.")
    env: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=128,
        description="Environment of every rank; names beginning with GAVEL_ are taken.",
    )
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=32)
    throughputs: dict[TypeName, StepsPerSecond] = Field(
        default_factory=dict,
        max_length=64,
        description="Known speed of the whole gang by accelerator type, in steps per second; it is measured anyway.",
    )
    preemptible: bool = True
    cpu_cores: int = Field(1, ge=1, le=4096)
    memory_bytes: int = Field(0, ge=0, le=1 << 50)

    @model_validator(mode="after")
    def _says_what_to_run(self) -> Self:
        if self.kind is None and self.argv is None:
            raise ValueError("give argv, or kind with a name of GET /v1/catalogue")
        return self


class ShownState(StrEnum):
    """What users see of a job's state."""

    QUEUED = "QUEUED"  # has not run yet
    PROFILING = "PROFILING"  # holds a lease to be measured
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"  # checkpointed and waiting again; not an error
    LOST = "LOST"  # its node or supervisor went away; runs again by itself
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobView(View):
    """A job and how far it is. `steps_done` is durable, `steps_reported` provisional."""

    id: str
    name: str
    kind: str
    user: str
    tier: str
    state: ShownState
    core_state: str
    reason: str
    message: str
    attempt: int
    token: int
    version: int
    argv: list[str]
    labels: dict[str, str]
    steps_done: int
    steps_reported: int
    total_steps: int
    scale_factor: int
    weight: float
    preemptible: bool
    deadline_at_s: float | None
    submitted_at_s: float
    started_at_s: float | None
    finished_at_s: float | None
    jct_s: float | None = Field(description="Job completion time: from submission to the end; null while it lives.")
    rho: float | None = Field(
        description="Finish-time fairness: time since submission, over that of the done steps on a 1/n share."
    )
    preemptions: int
    received_s: dict[str, float] = Field(description="Wall time held, by accelerator type.")
    rounds_received: dict[str, int]
    metrics: dict[str, float]
    exit_code: int | None
    log_tail: str
    accelerator_type: str | None = Field(description="Where it runs now.")
    worker_ids: list[str]


class JobList(View):
    """One page, newest first. `next_cursor` null: this was the last."""

    items: list[JobView]
    next_cursor: str | None


class EventView(View):
    """One entry of a job's story; `kind` is a noun with a verb (`lease.extended`)."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None


class EventList(View):
    """Events oldest first; ask again with `after=next_after`."""

    items: list[EventView]
    next_after: int
