"""What the API answers about jobs.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Any, Literal, TypedDict


class Code(TypedDict):
    """Which code a job runs."""

    digest: str  # SHA-256 of the list of files with their contents.
    commit: str  # The git commit that the files came from; empty outside git.
    is_modified: bool  # Files differ from the commit.
    git_url: str  # The git repository that the service fetched them from; empty: they were sent.
    git_ref: str  # The branch, tag or commit there, as it was asked for.
    diff: str  # Digest of the text that says how, GET /v1/jobs/{job_id}/diff; empty: none is stored.


DeadlineOutlook = Literal["met", "at_risk", "missed", "unknown"]
"""Whether a deadline will be met, by the present estimate."""


class Deadline(TypedDict):
    """The outlook for a deadline, from the end that `GET /v1/jobs/{job_id}/explanation` expects as `est_finish`."""

    # met: The whole interval of the expected end is before the deadline. at_risk: The deadline lies within the interval
    # of the expected end. missed: The deadline has passed, or lies before the interval, or before the end of the job
    # alone. unknown: Nobody has measured or stated the speed, or somebody has to act before the job can run.
    outlook: DeadlineOutlook
    deadline_at_s: float
    earliest_finish_at_s: float | None  # Alone on its fastest type from now on.
    expected_finish_at_s: float | None  # The same as est_finish_at_s of the explanation.
    expected_finish_low_at_s: float | None  # With the other end: should hold nine times in ten.
    expected_finish_high_at_s: float | None
    message: str  # The reason, with its figures.


class Plan(TypedDict):
    """One plan of a job."""

    name: str
    parameters: dict[str, int]
    sizes: list[int]  # Sizes at which it holds.
    argv: list[str]  # Its own command line; empty: that of the job.
    accelerator_types: list[str]
    accelerator_memory_bytes: int
    kind: str  # The kind under which its speeds are learned.


Reason = Literal[
    "PendingEvaluation",
    "BehindFairShare",
    "WaitingForCapacity",
    "Launched",
    "Running",
    "Profiling",
    "Preempted",
    "Retrying",
    "Lost",
    "Paused",
    "Moving",
    "WaitingForJobs",
    "QuotaExceeded",
    "ExceedsMaxQuota",
    "LowDisk",
    "DiskBudgetExceeded",
    "NonPreemptibleLimit",
    "Reserved",
    "ReservationMissed",
    "Serving",
    "Spread",
    "RegionAway",
    "TooManyJobs",
    "NoMatchingType",
    "Misconfigured",
    "Cancelling",
    "Cancelled",
    "Completed",
    "ProgramFailed",
    "ProgramNotStarted",
    "StepsMissing",
    "NoProgress",
    "DoesNotFit",
    "LostTooOften",
    "DependencyFailed",
]
"""Why a job is in its state, or why it was refused."""


class Residence(TypedDict):
    """The region of a job, and what its moves have cost."""

    region: str
    why: str  # Why it is there and not elsewhere.
    moved_from: str  # The region of its last move; empty: it has not moved.
    arrives_at_s: float | None  # When all has been copied there; null: all is there.
    moves: int
    egress_bytes: int  # What all its moves have copied out of regions.
    egress_usd: float


class Check(TypedDict):
    """A check of a replica."""

    path: str
    interval_s: float
    timeout_s: float
    failures: int


class Demand(TypedDict):
    """How the number of a service's replicas follows its demand; all in requests per second."""

    stated: float | Literal["measured"]  # What was stated; `measured`: what the replicas count.
    # What one replica answers within its latency goal, by accelerator type; the empty name: on any.
    rates: dict[str, float]
    headroom: float
    down_after_s: float
    metrics: str  # Path where replicas tell their metrics; empty: nowhere.
    requests_metric: str
    queue_metric: str
    now: float | None  # The demand, as it was last known; null: it never was.
    forecast: float | None  # What is expected within the next `lead_s` seconds, or is there now.
    lead_s: float  # Seconds from the making of a replica to its being ready, as measured.
    needed: float  # What the replicas are to answer: headroom and the recent past included.
    replicas: dict[str, int] | None  # How many are wanted, by accelerator type; null: the demand is not known yet.
    answered: float  # What so many replicas answer; less than `needed`: no more can be.
    # What keeps the number from being what the demand alone would ask for; empty: nothing.
    bound: Literal["", "replicas_min", "replicas_max", "room", "down_after_s", "readiness"]


class Service(TypedDict):
    """A service: what was submitted, and how far it is."""

    port: int
    readiness: Check
    liveness: Check | None
    replicas: int  # How many it is to have.
    replicas_min: int
    replicas_max: int
    min_available: int
    spread_by: str
    spread_hard: bool
    surge: int
    drain_s: float
    rollout_s: float
    version: int  # Grows with each change of the program.
    stable_version: int  # The newest of which all replicas were ready at once; 0: none was yet.
    refused_version: int  # The newest that was given up; 0: none was.
    replicas_now: int  # Those there are, without those that leave.
    ready: int  # Those that are endpoints.
    demand: Demand | None  # null: the number of replicas is stated.


ShownState = Literal[
    "QUEUED", "PROFILING", "RUNNING", "PREEMPTED", "LOST", "PAUSED", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"
]
"""What users see of a job's state."""


class Job(TypedDict):
    """A job: everything that was submitted, under the same names, and its progress."""

    startup_s: float | None  # From the start of its last program to its loop over steps.
    restore_s: float | None  # What the loading of its checkpoint took then.
    checkpoint_s: float | None  # What the writing of its last checkpoint took.
    checkpoint_bytes: int | None  # The size of its last checkpoint.
    # Seconds from one checkpoint for safety to the next, as its program chose, or was told.
    checkpoint_every_s: float | None
    checkpoint_cost_s: float | None  # How long its training stood still for its last checkpoint.
    # Mean seconds until a gang of its size is lost, from which its program chose how often.
    time_to_loss_s: float | None
    plan: str | None  # The plan in force; before the first gang the first one. Null: the job has no plans.
    plans: list[Plan]
    scale_factor: int  # Accelerators of its gang; of an elastic job the size in force.
    sizes: list[int]  # Sizes that the gang of an elastic job may have; empty: a rigid job.
    global_batch: int | None  # Samples of one step of an elastic job; null: a rigid job.
    max_global_batch: int | None  # Samples that an update may grow to; null: each is one step.
    # interactive: a session for people, with an end; service: it has replicas.
    mode: Literal["batch", "interactive", "service"]
    longest_s: float | None  # Most seconds that the session lasts; null: a batch job.
    idle_s: float | None  # It ends after so many seconds without use; null: it does not.
    session_ends_at_s: float | None  # When the session ends at the latest; null before its start if it is not reserved.
    reserved_at_s: float | None  # When the session was reserved to start; null: it was not.
    reserved_type: str  # The accelerator type of its reservation; empty without one.
    # 0.5: another session, or else a training, may run on the same accelerators; 1: nobody else may.
    accelerator_share: float
    service: Service | None  # null: the job is no service.
    replica_of: str | None  # The service whose replica the job is; null: of none.
    replica_version: int | None  # The version of the service's program that the replica runs.
    endpoint: str  # HOST:PORT of a replica that is ready; empty: it is none, or not ready.
    cpu_cores: int
    memory_bytes: int
    # Accelerator types that it may run on; with a leading `!` one that it may not run on. Empty: any type.
    accelerator_types: list[str]
    accelerator_memory_bytes: int  # Memory that each accelerator must have; 0: any.
    node_labels: dict[str, str]  # Labels that each node of the gang must have.
    # A label of nodes, such as topology.kubernetes.io/zone or rack, of which all nodes of the gang have one value.
    # Empty: none.
    topology_label: str
    regions: list[str]  # Regions that it may be in. Empty: any.
    data_region: str  # Region where its data set is; empty: it has none that counts.
    data_bytes: int  # Size of that data set.
    id: str
    name: str
    kind: str
    kind_from: str  # What the service made the kind of; empty: it was stated at the submit.
    kind_args: list[str]
    user: str
    tier: str
    state: ShownState
    core_state: str
    # * `PendingEvaluation`: No round has taken the job into account yet, or its gang is about to start. *
    # `BehindFairShare`: The allocation gives the job time that it has not received yet. * `WaitingForCapacity`: The
    # allocation gives the job no time now, because other jobs come first. * `Launched`: The gang of the job was sent to
    # its workers. * `Running`: The gang of the job runs. * `Profiling`: The job is measured on an accelerator type on
    # which nobody knows its speed. * `Preempted`: The lease of the job has ended, and the job waits for a later round.
    # * `Retrying`: The program of the job failed and is started again. * `Lost`: The gang of the job was lost, for
    # example because its node failed. * `Paused`: The job is paused. * `Moving`: The checkpoint and the data of the job
    # are copied to another region, where it goes on. * `WaitingForJobs`: The job starts after other jobs that have not
    # completed yet. * `QuotaExceeded`: The tier of the job has used its accelerator hours or its budget of this month.
    # * `ExceedsMaxQuota`: The job needs more accelerator hours than its tier has in a whole month. * `LowDisk`: The
    # service has too little free disk to start another gang; those that run go on. * `DiskBudgetExceeded`: The jobs of
    # the user fill more disk than they may, so that no other one starts. * `NonPreemptibleLimit`: Jobs that may not be
    # preempted hold as many workers as the tier allows them, or as caps and guarantees leave. * `Reserved`: The session
    # has a reservation, and starts at its time or as soon after it as there is room. * `ReservationMissed`: The time
    # that was reserved for the session was over before it could start. * `Serving`: The job is a service: its replicas
    # run, not the job itself. * `Spread`: The replica may not be where another replica of its service is, and no other
    # node can have it now. * `RegionAway`: No node can be used now of the regions that the job may be in. *
    # `TooManyJobs`: The user or the tier has as many unfinished jobs as it may have. * `NoMatchingType`: No accelerator
    # type has as many workers as the gang of the job needs. * `Misconfigured`: The tier of the job is gone, or no node
    # has what its gang needs: accelerators, labels, cores and memory. * `Cancelling`: The job was cancelled and ends
    # when its gang has stopped. * `Cancelled`: The job was cancelled. * `Completed`: The job has done all its steps. *
    # `ProgramFailed`: The program of the job ended with an error. * `ProgramNotStarted`: The program of the job could
    # not be started. * `StepsMissing`: The program of the job ended without an error before all steps were done. *
    # `NoProgress`: The leases of the job end before it has saved a checkpoint, and none can be longer; or its program
    # runs without reporting a step. * `DoesNotFit`: The job does not fit the accelerator type that it ran on; if it
    # fits no other, it has failed. * `LostTooOften`: Gangs of the job were lost several times in a row, without a new
    # checkpoint in between. * `DependencyFailed`: A job that had to complete first has failed or was cancelled.
    reason: Reason
    message: str  # Why the job is in its state, in sentences with figures.
    fix: str  # What helps, with the commands for it; empty: nothing needs to be done.
    attempt: int
    generation: int
    version: int
    argv: list[str]
    env: list[str]  # The names only: values may be secrets, and are never shown.
    secrets: list[str]  # Names of the secrets that are variables of the ranks.
    workdir: str  # Empty: the job runs in a folder of its own.
    python: str  # Empty: one without packages; for a kind of the catalogue the service's.
    image: str  # Container image that it runs in; empty: none.
    setup: str  # What fills its virtual environment; empty: it has none of its own.
    dump: str  # What saves the state of its program; empty: the program itself, or nothing.
    restore: str  # What gives that state back before the program starts.
    data: dict[str, str]  # Inputs by name: paths, and URLs that nodes fetch.
    code: Code | None  # Which code it runs; null: what is in the working directory.
    labels: dict[str, str]
    steps_done: int
    steps_reported: int
    total_steps: int | None  # As submitted, else as the program said; null while nobody has.
    submitted_steps: int | None  # `total_steps` of the submission; null: it had none.
    weight: float
    preemptible: bool
    throughputs: dict[str, float]  # Steps per second of the gang as stated at the submit, by type.
    deadline_at_s: float | None
    submitted_at_s: float
    started_at_s: float | None
    finished_at_s: float | None
    jct_s: float | None  # Job completion time: from submission to the end; null while it lives.
    rho: float | None  # Finish-time fairness: age over the time of the done steps on a 1/n share.
    deficit_s: float | None  # Age less the time of the done steps on a 1/n share; negative: ahead.
    isolated_share: str  # The same in words: 12 min behind its isolated share.
    preemptions: int
    received_s: dict[str, float]  # Wall time held, by accelerator type.
    rounds_received: dict[str, int]
    no_progress: str  # Why no lease is expected to end with a checkpoint; empty: one may.
    metrics: dict[str, float]
    phases_s: dict[str, float]  # Seconds in phases that its program marked as no training.
    work_units_per_s: float | None  # Units of work per second of training, if it reports them.
    exit_code: int | None
    log_tail: str
    accelerator_type: str | None  # Where it runs now.
    worker_ids: list[str]
    priority: int
    max_retries: int
    failures: int  # How many times its program failed and was started again.
    after: list[str]
    waits_for: list[str]  # Those of `after` that have not completed.
    pause_requested: bool
    array_id: str | None
    array_index: int | None
    notify: list[str] | None  # Of what its user is notified; null: as the user chose for all jobs.
    resubmit_of: str | None  # The job that was submitted again as this one.
    from_checkpoint: str  # The checkpoint it began with, JOB/NAME; empty: it began at step 0.
    residence: Residence | None  # Its region; null where regions are not told apart.
    deadline: Deadline | None  # Whether the deadline will be met, as things stand.


class AuditEntry(TypedDict):
    """One decision: who made it, about what (`tier/gold`, `job/ID`), whom it affects, values before and after."""

    sequence: int
    at_s: float
    by: str
    action: str
    subject: str
    user: str
    round_index: int | None
    before: dict[str, Any] | None
    after: dict[str, Any]


class Event(TypedDict):
    """One entry of a job's history; `kind` is a noun with a verb (`lease.extended`)."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None
    # Workers of the job's gang from this event on, 0 where it has ended; null: as many as before.
    gang_size: int | None
    plan: str | None  # Execution plan of the gang that this event launches; null: none.


class Reservation(TypedDict):
    """Workers that an interactive session has, or will have, from an instant to another."""

    job_id: str | None  # The session; null for another user's.
    user: str | None  # Whose it is; null for another user's.
    name: str | None  # What its user calls it; null for another user's.
    accelerator_type: str
    workers: int
    reserved_at_s: float
    ends_at_s: float
    has_started: bool  # Whether its program has been started.


class JobBatch(TypedDict):
    """The jobs that were submitted together, in the order given; `array_id` for those of an array."""

    array_id: str | None
    items: list[Job]


class Cancelled(TypedDict):
    """Jobs that now end, and those of `ids` that do not: they do not exist, had ended before, or are to be kept."""

    cancelling: list[str]
    skipped: list[str]


class CodeLimits(TypedDict):
    """What the service takes as the code of a job, and where jobs run."""

    max_bytes: int  # Most that the files of a code version may have together.
    machine: str  # Boot id of the one machine that jobs run on, whose paths are theirs; empty: a cluster of several.
    folders: list[str]  # Folders of that machine in which jobs of the caller may name files; / is anywhere.


class CodeVersion(TypedDict):
    """A code version, and which of its chunks have to be sent; without any it is complete."""

    digest: str
    missing: list[str]


class FetchedCode(TypedDict):
    """Code that the service fetched from a git repository, as the field `code` of a job takes it."""

    digest: str  # Of the code version; empty: it is still being fetched, so ask again.
    commit: str
    git_url: str
    git_ref: str


class CodeDiffStored(TypedDict):
    """A diff that is stored."""

    digest: str  # For the field `diff` of a job's code.


class Endpoint(TypedDict):
    """Where a replica that is ready is reached."""

    job_id: str
    address: str  # HOST:PORT.
    version: int


class TargetGroup(TypedDict):
    """One replica in the form of Prometheus' HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]
