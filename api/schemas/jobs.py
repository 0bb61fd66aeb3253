"""Jobs."""

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from api.schemas.code import CodeOfJob, CodeView
from api.schemas.elastic import ElasticSubmit, ElasticView
from api.schemas.fields import (
    AbsolutePath,
    Argument,
    ArgumentName,
    ImageName,
    InputName,
    InputSource,
    JobIdText,
    Kind,
    Label,
    LabelKey,
    LabelValue,
    Name,
    Priority,
    Request,
    ShellLine,
    StepsPerSecond,
    TypeName,
    VariableName,
    VariableValue,
    View,
    Weight,
    example,
)
from api.schemas.inference import ServicePatch, ServiceShown, ServiceSubmit
from api.schemas.needs import NeedsSubmit, NeedsView, ResidenceView
from api.schemas.notifications import Occasions
from api.schemas.plans import PlansSubmit, PlansView
from api.schemas.sessions import SessionSubmit, SessionView
from api.schemas.startup import StartupView
from gavel.types import TOTAL_STEPS_MAX, Reason

ARRAY_JOBS_MAX = 1000


class ProgramSubmit(Request):
    """The part of a submission that says what runs, for whom and when."""

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
        " Default: made of the script and those arguments that usually change its speed; see `kind_args`.",
    )
    argv: list[Argument] | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Program and arguments; never a shell line. Catalogue kinds bring theirs.",
    )
    name: Name | None = Field(None, description="For people; need not be unique.")
    total_steps: int | None = Field(
        None,
        ge=1,
        le=TOTAL_STEPS_MAX,
        description="Training steps until the job is complete. Default: the program says it, job.steps(total=N).",
    )
    scale_factor: int = Field(
        1, ge=1, le=1024, description="Accelerators (all of one type) that the gang needs at once."
    )
    tier: Name | None = Field(None, description="One of your tiers; default: your first.")
    weight: Weight = Field(1.0, description="Relative to your other jobs in the tier.")
    deadline_at_s: float | None = Field(None, ge=0, le=1e11, description="Unix time; one that has passed is refused.")
    env: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=128,
        description="Environment of every rank; a variable that the service sets is refused with the reason.",
    )
    secrets: list[VariableName] = Field(
        default_factory=list,
        max_length=128,
        description="Names of your secrets (PUT /v1/secrets/NAME); each is a variable of every rank.",
    )
    workdir: AbsolutePath | None = Field(
        None, description="Folder that every rank runs in, on the job's nodes. Default: an empty folder of the job."
    )
    python: AbsolutePath | None = Field(
        None,
        description="Interpreter for `python` in argv, first on the PATH, on its nodes. Default: one without packages.",
    )
    setup: ShellLine | None = Field(
        None,
        description="Shell line that fills the job's virtual environment, such as `pip install -r requirements.txt`."
        " Run once for each content and node, in the job's folder, before the ranks start.",
    )
    dump: ShellLine | None = Field(
        None,
        description="Shell line that saves the state of a program that cannot be changed in the empty folder"
        " $GAVEL_SNAPSHOT_DIR, while it goes on. With `restore`, without `total_steps`: a step is a second of its run.",
    )
    restore: ShellLine | None = Field(
        None, description="Shell line that gives back what `dump` saved there, before a start."
    )
    image: ImageName | None = Field(
        None, description="Container image that the ranks run in, with its own interpreter and packages."
    )
    data: dict[InputName, InputSource] = Field(
        default_factory=dict,
        max_length=64,
        description="Inputs that the job only reads, by name: an absolute path on the job's nodes, or a URL that each"
        " node fetches once. A rank has the place of `train` in GAVEL_DATA_TRAIN.",
    )
    code: CodeOfJob | None = Field(
        None, description="A stored code version: the job runs in a copy of its own, from `workdir`."
    )
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=32)
    throughputs: dict[TypeName, StepsPerSecond] = Field(
        default_factory=dict,
        max_length=64,
        description="Known speed of the whole gang by accelerator type, in steps per second; it is measured anyway.",
    )
    preemptible: bool = True
    priority: Priority | None = Field(
        None,
        description="Each step doubles the weight among your jobs; in a tier that serves in order those that follow one"
        " another go by it. Default, and the most that a user may state: the tier's.",
    )
    max_retries: int = Field(0, ge=0, le=1000, description="How many times a failed program is started again.")
    after: list[JobIdText] = Field(
        default_factory=list,
        max_length=100,
        description="Jobs that must complete first; this job fails if one of them does not.",
    )
    kind_args: list[ArgumentName] = Field(
        default_factory=list,
        max_length=32,
        description="Names of further arguments that change the speed, and so belong to the default kind.",
    )
    notify: Occasions | None = Field(
        None,
        description="Of what its user is notified: end, failure, no-progress; []: nothing."
        " Default: what the user chose for all jobs (PUT /v1/notification-settings).",
    )

    @model_validator(mode="after")
    def _says_what_to_run(self) -> Self:
        if self.kind is None and self.argv is None:
            raise ValueError("give argv, or kind with a name of GET /v1/catalogue")
        return self


class JobSubmit(NeedsSubmit, ServiceSubmit, SessionSubmit, ElasticSubmit, PlansSubmit, ProgramSubmit):
    """A job to run: a catalogue kind, or a program of your own (`argv`), or both."""


class JobArraySubmit(Request):
    """The same job many times: once for each combination of the parameters' values, or `count` times.

    A parameter is set in the environment, and put for `{NAME}` in argv. GAVEL_ARRAY_INDEX counts from 0.
    """

    model_config = example(
        job={"argv": ["python", "/home/ann/train.py", "--rate", "{RATE}"], "total_steps": 5000},
        parameters={"RATE": ["0.1", "0.01"], "SEED": ["1", "2", "3"]},
    )

    job: JobSubmit
    parameters: dict[VariableName, Annotated[list[VariableValue], Field(min_length=1, max_length=1000)]] = Field(
        default_factory=dict, max_length=16
    )
    count: int | None = Field(None, ge=1, le=ARRAY_JOBS_MAX, description="Instead of parameters.")

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if (self.count is None) == (not self.parameters):
            raise ValueError("give either parameters or count")
        size = math.prod(len(values) for values in self.parameters.values())
        if size > ARRAY_JOBS_MAX:
            raise ValueError(f"{size} combinations are more than {ARRAY_JOBS_MAX}; leave values out, or submit twice")
        return self


class JobBatchSubmit(Request):
    """Jobs to submit together: all or none."""

    model_config = example(jobs=[{"kind": "mlp-b256", "total_steps": 500}, {"kind": "cnn-b64", "total_steps": 500}])

    jobs: list[JobSubmit] = Field(min_length=1, max_length=ARRAY_JOBS_MAX)


class JobPatch(ServicePatch):
    """What to change of an unfinished job; what is left out stays. `labels` replace all labels."""

    model_config = example(weight=2.0, priority=1, labels={"project": "vision"})

    weight: Weight | None = None
    priority: Priority | None = None
    labels: dict[LabelKey, LabelValue] | None = Field(None, max_length=32)


class JobResubmit(Request):
    """What differs from the job that is submitted again; what is left out is as it was. `env` adds variables."""

    model_config = example(max_retries=3, env={"SEED": "8"})

    name: Name | None = None
    total_steps: int | None = Field(None, ge=1, le=TOTAL_STEPS_MAX)
    scale_factor: int | None = Field(None, ge=1, le=1024)
    tier: Name | None = None
    weight: Weight | None = None
    deadline_at_s: float | None = Field(None, ge=0, le=1e11, description="One that has passed meanwhile is left out.")
    env: dict[VariableName, VariableValue] = Field(default_factory=dict, max_length=128)
    labels: dict[LabelKey, LabelValue] | None = Field(None, max_length=32, description="Replace all labels.")
    priority: Priority | None = None
    max_retries: int | None = Field(None, ge=0, le=1000)
    from_checkpoint: bool = Field(
        False, description="Begin with the accepted checkpoint of the old job, and not at the first step."
    )


class CancelBatch(Request):
    """Which unfinished jobs to cancel: those that match every given filter, except those to keep."""

    model_config = example(array_id="01kwz3tbcd00001x", keep=["01kwz3tbcd00001z"])

    ids: list[JobIdText] | None = Field(None, min_length=1, max_length=ARRAY_JOBS_MAX)
    label: Label | None = None
    array_id: JobIdText | None = None
    keep: list[JobIdText] = Field(default_factory=list, max_length=ARRAY_JOBS_MAX)

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if self.ids is None and self.label is None and self.array_id is None:
            raise ValueError("give ids, label or array_id")
        return self


class ShownState(StrEnum):
    """What users see of a job's state."""

    QUEUED = "QUEUED"  # has not run yet
    PROFILING = "PROFILING"  # holds a lease to be measured
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"  # checkpointed and waiting again; not an error
    LOST = "LOST"  # its node or supervisor was lost; it runs again without a request
    PAUSED = "PAUSED"  # by its user; it waits until it is resumed
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class DeadlineOutlook(StrEnum):
    """Whether a deadline will be met, by the present estimate."""

    MET = "met"
    AT_RISK = "at_risk"
    MISSED = "missed"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """Return what it means, as a sentence for people."""
        return _OUTLOOKS[self]


_OUTLOOKS = {
    DeadlineOutlook.MET: "The whole interval of the expected end is before the deadline.",
    DeadlineOutlook.AT_RISK: "The deadline lies within the interval of the expected end.",
    DeadlineOutlook.MISSED: "The deadline has passed, or lies before the interval, or before the end of the job alone.",
    DeadlineOutlook.UNKNOWN: "Nobody has measured or stated the speed, or somebody has to act before the job can run.",
}


class DeadlineView(View):
    """The outlook for a deadline, from the end that `GET /v1/jobs/{job_id}/explanation` expects as `est_finish`."""

    outlook: DeadlineOutlook = Field(description=" ".join(f"{each}: {each.sentence}" for each in DeadlineOutlook))
    deadline_at_s: float
    earliest_finish_at_s: float | None = Field(description="Alone on its fastest type from now on.")
    expected_finish_at_s: float | None = Field(description="The same as est_finish_at_s of the explanation.")
    expected_finish_low_at_s: float | None = Field(description="With the other end: should hold nine times in ten.")
    expected_finish_high_at_s: float | None
    message: str = Field(description="The reason, with its figures.")


REASONS = "\n".join(f"* `{each.value}`: {each.sentence}" for each in Reason)


class JobView(NeedsView, ServiceShown, SessionView, ElasticView, PlansView, StartupView):
    """A job: everything that was submitted, under the same names, and its progress.

    `steps_done` is durable, `steps_reported` provisional.
    """

    id: str
    name: str
    kind: str
    kind_from: str = Field(description="What the service made the kind of; empty: it was stated at the submit.")
    kind_args: list[str]
    user: str
    tier: str
    state: ShownState
    core_state: str
    reason: Reason = Field(description=REASONS)
    message: str = Field(description="Why the job is in its state, in sentences with figures.")
    fix: str = Field(description="What helps, with the commands for it; empty: nothing needs to be done.")
    attempt: int
    generation: int
    version: int
    argv: list[str]
    env: list[str] = Field(description="The names only: values may be secrets, and are never shown.")
    secrets: list[str] = Field(description="Names of the secrets that are variables of the ranks.")
    workdir: str = Field(description="Empty: the job runs in a folder of its own.")
    python: str = Field(description="Empty: one without packages; for a kind of the catalogue the service's.")
    image: str = Field(description="Container image that it runs in; empty: none.")
    setup: str = Field(description="What fills its virtual environment; empty: it has none of its own.")
    dump: str = Field(description="What saves the state of its program; empty: the program itself, or nothing.")
    restore: str = Field(description="What gives that state back before the program starts.")
    data: dict[str, str] = Field(description="Inputs by name: paths, and URLs that nodes fetch.")
    code: CodeView | None = Field(description="Which code it runs; null: what is in the working directory.")
    labels: dict[str, str]
    steps_done: int
    steps_reported: int
    total_steps: int | None = Field(description="As submitted, else as the program said; null while nobody has.")
    submitted_steps: int | None = Field(description="`total_steps` of the submission; null: it had none.")
    weight: float
    preemptible: bool
    throughputs: dict[str, float] = Field(description="Steps per second of the gang as stated at the submit, by type.")
    deadline_at_s: float | None
    submitted_at_s: float
    started_at_s: float | None
    finished_at_s: float | None
    jct_s: float | None = Field(description="Job completion time: from submission to the end; null while it lives.")
    rho: float | None = Field(description="Finish-time fairness: age over the time of the done steps on a 1/n share.")
    deficit_s: float | None = Field(description="Age less the time of the done steps on a 1/n share; negative: ahead.")
    isolated_share: str = Field(description="The same in words: 12 min behind its isolated share.")
    preemptions: int
    received_s: dict[str, float] = Field(description="Wall time held, by accelerator type.")
    rounds_received: dict[str, int]
    no_progress: str = Field(description="Why no lease is expected to end with a checkpoint; empty: one may.")
    metrics: dict[str, float]
    phases_s: dict[str, float] = Field(description="Seconds in phases that its program marked as no training.")
    work_units_per_s: float | None = Field(description="Units of work per second of training, if it reports them.")
    exit_code: int | None
    log_tail: str
    accelerator_type: str | None = Field(description="Where it runs now.")
    worker_ids: list[str]
    priority: int
    max_retries: int
    failures: int = Field(description="How many times its program failed and was started again.")
    after: list[str]
    waits_for: list[str] = Field(description="Those of `after` that have not completed.")
    pause_requested: bool
    array_id: str | None
    array_index: int | None
    notify: list[str] | None = Field(description="Of what its user is notified; null: as the user chose for all jobs.")
    resubmit_of: str | None = Field(description="The job that was submitted again as this one.")
    from_checkpoint: str = Field(description="The checkpoint it began with, JOB/NAME; empty: it began at step 0.")
    residence: ResidenceView | None = Field(description="Its region; null where regions are not told apart.")
    deadline: DeadlineView | None = Field(description="Whether the deadline will be met, as things stand.")


class JobList(View):
    """One page, newest first. `next_cursor` null: this was the last."""

    items: list[JobView]
    next_cursor: str | None


class JobBatchView(View):
    """The jobs that were submitted together, in the order given; `array_id` for those of an array."""

    array_id: str | None
    items: list[JobView]


class CancelledView(View):
    """Jobs that now end, and those of `ids` that do not: they do not exist, had ended before, or are to be kept."""

    cancelling: list[str]
    skipped: list[str]
