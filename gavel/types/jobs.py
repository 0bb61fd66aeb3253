"""Jobs: what users asked for, and the progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gavel.types.checkpoints import WrittenCheckpoint
from gavel.types.cluster import AcceleratorType
from gavel.types.copying import changed
from gavel.types.execution_plans import ExecutionPlan
from gavel.types.needs import NO_NEEDS, Needs, needs_of
from gavel.types.occasions import Occasion
from gavel.types.reasons import Reason
from gavel.types.regions import AT_HOME_NOWHERE, Residence
from gavel.types.services import ReplicaSpec, ServiceSpec, ServiceStatus

JobId = str
TOTAL_STEPS_MAX = 10**12  # of a job


class JobState(StrEnum):
    """The states of a job; what users see is derived from these and the last reason."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """True once nothing can happen to the job any more."""
        return self._value_ in _TERMINAL


_TERMINAL = frozenset({JobState.COMPLETED.value, JobState.FAILED.value, JobState.CANCELLED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVersion:
    """Which code a job runs: the digest of its files, and the git commit that they came from.

    `commit` is empty outside git; `is_modified` says that files differ from the commit, and `diff` is the digest of the
    text that says how; "": none is stored. `git_url` and `git_ref` say where the service fetched it, "": it was sent.
    """

    digest: str
    commit: str = ""
    is_modified: bool = False
    diff: str = ""
    git_url: str = ""
    git_ref: str = ""

    @property
    def stored(self) -> tuple[str, ...]:
        """Return the digests of all that is stored for it."""
        return (self.digest, self.diff) if self.diff else (self.digest,)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a user asked for; only its user changes it, but for the size of an elastic job.

    `kind` names only what determines speed (model, batch size); `kind_from` says what the service made it of, "": it
    was stated; `kind_args` names arguments that belong to it besides the usual ones. `argv` is never a shell line.
    `throughput_steps_per_s`: what the user states per accelerator type, for the gang. Each step of `priority` doubles
    the weight among the user's jobs; in tiers that serve in order it reorders those that follow one another.
    `max_retries`: how often a program that failed is started again. `after`: jobs that must have completed first. The
    jobs of one array share `array_id`, the id of the first. The gang runs in `workdir`, or in its own copy of `code` if
    there is one; without both in an empty folder of the job. `python` is the path of the interpreter; "": one without
    packages, for kinds of the catalogue the service's. `setup` is a shell line that fills the job's virtual
    environment; `dump` and `restore` save and give back the state of a program that cannot be changed. `image` is a
    container image that the ranks run in. `secrets` are names: each is a variable of the ranks, with the value that its
    user has stored when a gang starts. `data` are the inputs, which the job only reads: by name a path of its nodes, or
    a URL to fetch.
    A job with `longest_s` is an interactive session: never preempted, it ends so many seconds after its program first
    started, and earlier when nobody has used it for `idle_s` seconds (gavel/mechanism/jobs/interactive.py). With
    `reserved_at_s`, Unix time, it starts then, `longest_s` counts from then, and its workers, which the service has
    chosen to be of `reserved_type`, are reserved for it (gavel/mechanism/jobs/reservations.py). An `accelerator_share`
    of 0.5 lets another session that says the same onto its accelerators (gavel/mechanism/planning/shared_sessions.py),
    or else a training that fits there beside it (gavel/mechanism/planning/guests.py).
    A job with `service` is an inference service: it has no gang; its replicas are jobs, each with `replica`, that the
    scheduler makes and ends (gavel/mechanism/services).
    `total_steps` None: the program says how long it is (see `Job.total_steps`). `notify`: of what the user is notified;
    None: as the user chose for all jobs. `cpu_cores` to `node_labels` are what each rank needs (gavel/types/needs.py).
    A job with `regions` may be in these only. Its data set, `data_bytes` large, is in `data_region`; "": it has none.
    The scheduler sets `home`, of the regions the one where it runs now (see `Job.residence`).
    An elastic job has `sizes` and a `global_batch`: a step is so many samples at every size, and the scheduler sets
    `scale_factor`, the size in force (see `Job.size`). With a `max_global_batch` an update of its training may take
    several global batches, up to that, where the noise of its gradients makes that pay.
    A job with `plans` runs under one of these; the scheduler sets `plan`, the name of the one in force, and with it the
    `kind` (see `Job.plan`).
    """

    kind: str
    user: str
    tier: str
    argv: tuple[str, ...]
    total_steps: int | None = None
    name: str = ""
    kind_from: str = ""
    kind_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    scale_factor: int = 1
    sizes: tuple[int, ...] = ()  # of an elastic job, ascending; (): its gang always has `scale_factor` workers
    global_batch: int = 0  # samples of a step of an elastic job; 0: the program knows
    max_global_batch: int = 0  # samples of the largest update; 0: each update is a step
    plans: tuple[ExecutionPlan, ...] = ()
    plan: str = ""  # "": a job without plans
    weight: float = 1.0
    deadline_at_s: float | None = None
    preemptible: bool = True
    longest_s: float | None = None  # of an interactive session; None: a batch job
    idle_s: float | None = None
    reserved_at_s: float | None = None
    reserved_type: AcceleratorType = ""
    accelerator_share: float = 1.0  # of a session
    service: ServiceSpec | None = None
    replica: ReplicaSpec | None = None
    cpu_cores: int = 1
    memory_bytes: int = 0
    accelerator_types: tuple[str, ...] = ()
    accelerator_memory_bytes: int = 0
    node_labels: Mapping[str, str] = field(default_factory=dict)
    topology_label: str = ""  # of nodes: all those of the gang have one value of it
    regions: tuple[str, ...] = ()
    data_region: str = ""
    data_bytes: int = 0
    home: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    throughput_steps_per_s: Mapping[AcceleratorType, float] = field(default_factory=dict)
    priority: int = 0
    max_retries: int = 0
    after: tuple[JobId, ...] = ()
    array_id: JobId | None = None
    array_index: int | None = None
    resubmit_of: JobId | None = None  # the job that was submitted again as this one
    workdir: str = ""
    python: str = ""
    setup: str = ""
    dump: str = ""
    restore: str = ""
    image: str = ""
    secrets: tuple[str, ...] = ()
    code: CodeVersion | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    notify: tuple[Occasion, ...] | None = None
    from_checkpoint: str = ""  # the checkpoint of another job, JOB/GENERATION-STEP, that it begins with; "": none

    @property
    def needs(self) -> Needs:
        """Return what each rank needs of the place where it runs."""
        others = self.memory_bytes or self.accelerator_memory_bytes or self.accelerator_types or self.node_labels
        nodes = self.replica.nodes if self.replica else ()
        regions = (self.home,) if self.home else self.regions
        if self.cpu_cores <= 1 and not (others or nodes or regions):
            return NO_NEEDS
        labels = tuple(sorted(self.node_labels.items())) if self.node_labels else ()
        cores = max(1, self.cpu_cores)
        memory = self.accelerator_memory_bytes, self.memory_bytes
        return needs_of(self.accelerator_types, memory[0], labels, cores, memory[1], nodes, regions)

    @property
    def is_elastic(self) -> bool:
        """True for a job whose gang may have one size now and another later."""
        return bool(self.sizes)

    @property
    def possible_sizes(self) -> tuple[int, ...]:
        """Return how many workers a gang of the job may have, ascending."""
        return self.sizes or (self.scale_factor,)

    @property
    def has_choice(self) -> bool:
        """True for a job whose size or plan the rounds choose."""
        return bool(self.sizes or self.plans)

    @property
    def plan_in_force(self) -> ExecutionPlan | None:
        """Return the plan under which the job runs, or ran last; before its first gang its first one; None: no plan."""
        return next((each for each in self.plans if each.name == self.plan), None)

    @property
    def is_interactive(self) -> bool:
        """True for an interactive session, which has an end and is never preempted before it."""
        return self.longest_s is not None

    @property
    def mode(self) -> str:
        """Return batch, interactive or service; a replica is batch."""
        return "service" if self.service else "interactive" if self.is_interactive else "batch"

    @property
    def first_step(self) -> int:
        """Return the step that the job begins with: 0, or that of the other job's checkpoint."""
        return int(self.from_checkpoint.rpartition("-")[2] or 0)


def in_size(spec: JobSpec, size: int | None) -> JobSpec:
    """Return the specification with the size in force; the same object for a rigid job, and if nothing changes."""
    if size is None or not spec.is_elastic or size == spec.scale_factor:
        return spec
    return changed(spec, scale_factor=size)


def in_plan(spec: JobSpec, plan: str) -> JobSpec:
    """Return the specification with the plan of this name in force; the same object if it has none or it is in force.

    "" is the plan of a job that has had no gang yet.
    """
    wanted = next((each for each in spec.plans if each.name == plan), None)
    return spec if wanted is None or plan == spec.plan else changed(spec, plan=plan, kind=wanted.kind)


def in_region(spec: JobSpec, region: str) -> JobSpec:
    """Return the specification with the region where the job runs now; the same object if nothing changes."""
    return spec if region == spec.home else changed(spec, home=region)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Units of work that a program has reported, with the steps and the seconds of training in which it did them."""

    units: float = 0.0
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)  # without slots: `changed` (copying.py) copies it with every report
class Job:
    """A submitted job and its progress.

    `steps_done` counts steps up to the last accepted checkpoint or the verified end; `steps_reported` is provisional.
    `generation` is the generation of the newest gang that was launched (0: none yet); generations only grow.
    `size` is how many workers the newest gang of an elastic job has, or the next one of a job that waits; None: a rigid
    job, or one that no round has looked at. `spec.scale_factor` says the same. `plan` is the execution plan of the
    newest gang, "" before the first and for a job without plans; `spec.plan` says the same. `plan_trained` is that of
    the last gang that has reported.
    `received_s` is wall time held per accelerator type (of an elastic job what its worker seconds are at `size`);
    `isolated_time_s` what the reported steps would have taken on a 1/n share of the cluster (Themis' finish-time
    fairness); `isolated_steps` is the same in steps of an unclipped equal share, so that a better throughput estimate
    corrects it. `received_s` is accounted up to `accounted_until_s`; of it `shared_s` is the time in which another job
    was on the same workers. `gang_started_at_s` is when the newest gang started by the clock that was looked at last:
    if it started at another instant by the clock of now, that was set, or is another host's.
    `waits_for` holds those of `spec.after` that have not completed; `failures` counts programs started again,
    `losses` gangs lost since the last durable step; the next is not started before `retry_at_s`.
    `trained_s` and `trained_steps` are what the newest gang has reported as training; `training_since_s` is the instant
    at which its training began, None before its first report. `startup_s`, `restore_s` and `checkpoint_s` are the last
    that a gang reported (gavel/types/startup.py), as are the size of a checkpoint and the seconds from one to the next
    that its program chose. `checkpoints_written` are the last accepted ones, the newest last.
    `leases_without_checkpoint` counts the leases since the last accepted
    checkpoint, the longest lasted `longest_without_checkpoint_s`; `no_progress` says why none is expected any more,
    and what helps, empty while there is hope.
    `phases_s` is the time in phases that are no training, by name; `outside_s` that of the newest gang since its first
    report. `work` is 0 for a program that reports no units of work.
    `program_steps` is how many steps the program said it has, where its user did not; `last_step` the step at which it
    ended its training before the last of them, None: it did not.
    `residence` is in which region it is; `spec.home` says the same.
    `over` says why an interactive session, or a replica, is being ended; empty: it is not.
    `endpoint` is the HOST:PORT of a replica that is ready, `was_ready` that it once was, and `leaving_at_s` when its
    service stopped sending requests there. `serving` and `stable_spec` are of a service: how far it is, and its
    specification at the version `stable`.
    """

    id: JobId
    spec: JobSpec
    state: JobState = JobState.QUEUED
    submitted_at_s: float = 0.0
    steps_done: int = 0
    steps_reported: int = 0
    attempt: int = 0
    size: int | None = None
    plan: str = ""
    plan_trained: str = ""
    generation: int = 0
    version: int = 1
    checkpoint: str | None = None
    report_sequence: int = 0
    cancel_requested: bool = False
    pause_requested: bool = False
    residence: Residence = AT_HOME_NOWHERE
    waits_for: tuple[JobId, ...] = ()
    failures: int = 0
    losses: int = 0
    retry_at_s: float = 0.0
    trained_s: float = 0.0
    trained_steps: int = 0
    training_since_s: float | None = None
    startup_s: float | None = None
    restore_s: float | None = None
    checkpoint_s: float | None = None
    checkpoint_bytes: int | None = None
    checkpoint_every_s: float | None = None
    checkpoints_written: tuple[WrittenCheckpoint, ...] = ()
    leases_without_checkpoint: int = 0
    longest_without_checkpoint_s: float = 0.0
    no_progress: str = ""
    over: str = ""
    endpoint: str = ""
    was_ready: bool = False
    leaving_at_s: float | None = None
    serving: ServiceStatus | None = None
    stable_spec: JobSpec | None = None
    program_steps: int | None = None
    last_step: int | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    outside_s: float = 0.0
    work: WorkDone = WorkDone()
    reason: Reason = Reason.PENDING_EVALUATION
    message: str = ""
    preemptions: int = 0
    received_s: Mapping[AcceleratorType, float] = field(default_factory=dict)
    shared_s: Mapping[AcceleratorType, float] = field(default_factory=dict)
    rounds_received: Mapping[AcceleratorType, int] = field(default_factory=dict)
    isolated_steps: float = 0.0
    isolated_time_s: float = 0.0
    accounted_until_s: float = 0.0
    gang_started_at_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    started_at_s: float | None = None
    finished_at_s: float | None = None
    exit_code: int | None = None
    log_tail: str = ""

    @property
    def is_wanted(self) -> bool:
        """True while the job is to run: it has not ended, is no session that is over, nor to be paused or cancelled."""
        return not (self.state.is_terminal or self.cancel_requested or self.pause_requested or self.over)

    @property
    def session_ends_at_s(self) -> float | None:
        """Return when an interactive session ends at the latest, Unix time; None for others, and before its start.

        The end of one that is reserved is known before, and is the same if it starts late.
        """
        starts_at_s = self.started_at_s if self.spec.reserved_at_s is None else self.spec.reserved_at_s
        if self.spec.longest_s is None or starts_at_s is None:
            return None
        return starts_at_s + self.spec.longest_s

    @property
    def has_reported(self) -> bool:
        """True once a report of the newest gang was taken."""
        return self.report_sequence > 0

    @property
    def has_saved(self) -> bool:
        """True once a checkpoint of the newest gang was accepted; its name begins with the gang's generation."""
        return self.checkpoint is not None and self.checkpoint.startswith(f"{self.generation}-")

    @property
    def explanation(self) -> str:
        """Return why the job is in its state: its message, or the sentence of its reason while it has none."""
        return self.message or self.reason.sentence

    @property
    def total_steps(self) -> int | None:
        """Return how many steps the job has: those it did if its program ended early, else those of `stated_steps`."""
        return self.stated_steps if self.last_step is None else self.last_step

    @property
    def stated_steps(self) -> int | None:
        """Return how many steps the job had: as submitted, else as its program said; None while nobody has said it."""
        return self.program_steps if self.spec.total_steps is None else self.spec.total_steps

    @property
    def steps_so_far(self) -> int:
        """Return the steps done, those that only a report says included."""
        return max(self.steps_done, self.steps_reported)

    @property
    def position(self) -> str:
        """Return where the job is, for sentences: `step 5 of 10`, or `step 5` while its length is not known."""
        of_total = "" if self.total_steps is None else f" of {self.total_steps}"
        return f"step {self.steps_done}{of_total}"
