"""What the API is sent about jobs.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict


class CodeOfJob(TypedDict):
    """Which code version a job runs. Commit and changes are what the caller says; the digest is what runs."""

    digest: str
    commit: NotRequired[str]  # The git commit that the files came from; empty outside git.
    is_modified: NotRequired[bool]  # Files differ from the commit.
    git_url: NotRequired[str]  # The git repository that the service fetched them from; empty: they were sent.
    git_ref: NotRequired[str]  # The branch, tag or commit there, as it was asked for.
    diff: NotRequired[str]  # How they differ, stored with POST /v1/code-diffs; empty: nobody says it.


class PlanOfJob(TypedDict):
    """One way in which the ranks of the job divide its work, which the service may choose."""

    name: NotRequired[str | None]  # Default: the parameters, such as `tensor=2,pipeline=1`.
    parameters: NotRequired[Mapping[str, int]]  # Told to each rank: `tensor` as GAVEL_PLAN_TENSOR, and so on.
    # Sizes of the job at which the plan holds. Default: those that the product of the parameters divides.
    sizes: NotRequired[Sequence[int]]
    argv: NotRequired[Sequence[str] | None]  # A command line of its own. Default: that of the job.
    # Accelerator types that it may run on; with a leading `!` one that it may not run on. Empty: any type.
    accelerator_types: NotRequired[Sequence[str]]
    accelerator_memory_bytes: NotRequired[int]  # Memory that each accelerator must have for the plan. Default: any.


class CheckOfService(TypedDict):
    """How it is found out whether a replica answers."""

    path: NotRequired[str]  # A GET of this path, to be answered below 400; empty: a TCP connection.
    interval_s: NotRequired[float]  # Seconds from one check to the next.
    timeout_s: NotRequired[float]  # Seconds in which it has to be answered.
    failures: NotRequired[int]  # So many bad answers in a row mean that it fails.


class ServiceOfJob(TypedDict):
    """The part of a submission that says what an inference service needs."""

    demand: NotRequired[float | Literal["measured"] | None]  # Requests per second, or `measured` by the replicas.
    rate: NotRequired[float | Mapping[str, float] | None]  # Requests/s of one replica within its goal, or by type.
    headroom: NotRequired[float]  # Part of the demand that the replicas can answer beyond it; 0.2: a fifth.
    down_after_s: NotRequired[float]  # Seconds that a lower demand lasts before replicas become fewer.
    metrics: NotRequired[str | None]  # Path of its metrics, in the text format of Prometheus.
    requests_metric: NotRequired[str | None]  # Name of the counter of requests there; all its labels are added up.
    queue_metric: NotRequired[str | None]  # Name of a gauge of requests that wait. Default: none is read.
    # Port that a replica listens on; 0: a free one, in GAVEL_REPLICA_PORT and put for {GAVEL_REPLICA_PORT} in argv.
    port: int
    readiness: CheckOfService  # A replica that passes it is an endpoint.
    liveness: NotRequired[CheckOfService | None]  # One that fails it is replaced. Default: only when its program ends.
    replicas: NotRequired[int]  # How many replicas it has now; with a demand, until that is known.
    replicas_min: NotRequired[int | None]  # The fewest. Default: as many as now.
    replicas_max: NotRequired[int | None]  # The most. Default: as many as now.
    min_available: NotRequired[int | None]  # Ready through every planned act. Default: one less than now, at least 1.
    # `node`, or a label of nodes such as rack: the replicas are apart there. Default: anywhere.
    spread_by: NotRequired[str | None]
    spread_hard: NotRequired[bool]  # A replica waits rather than join another one there.
    surge: NotRequired[int]  # Replicas more than `replicas`, while some are replaced.
    drain_s: NotRequired[float]  # Seconds that a replica which leaves has for its requests.
    rollout_s: NotRequired[float]  # Seconds until a new version is given up.


class JobSubmit(TypedDict):
    """A job to run: a catalogue kind, or a program of your own (`argv`), or both."""

    # What determines the speed: a catalogue name, or `user/name` with your own user. Default: made of the script and
    # those arguments that usually change its speed; see `kind_args`.
    kind: NotRequired[str | None]
    argv: NotRequired[Sequence[str] | None]  # Program and arguments; never a shell line. Catalogue kinds bring theirs.
    name: NotRequired[str | None]  # For people; need not be unique.
    # Training steps until the job is complete. Default: the program says it, job.steps(total=N).
    total_steps: NotRequired[int | None]
    scale_factor: NotRequired[int]  # Accelerators (all of one type) that the gang needs at once.
    tier: NotRequired[str | None]  # One of your tiers; default: your first.
    weight: NotRequired[float]  # Relative to your other jobs in the tier.
    deadline_at_s: NotRequired[float | None]  # Unix time; one that has passed is refused.
    # Environment of every rank; a variable that the service sets is refused with the reason.
    env: NotRequired[Mapping[str, str]]
    # Names of your secrets (PUT /v1/secrets/NAME); each is a variable of every rank.
    secrets: NotRequired[Sequence[str]]
    # Folder that every rank runs in, on the job's nodes. Default: an empty folder of the job.
    workdir: NotRequired[str | None]
    # Interpreter for `python` in argv, first on the PATH, on its nodes. Default: one without packages.
    python: NotRequired[str | None]
    # Shell line that fills the job's virtual environment, such as `pip install -r requirements.txt`. Run once for each
    # content and node, in the job's folder, before the ranks start.
    setup: NotRequired[str | None]
    # Shell line that saves the state of a program that cannot be changed in the empty folder $GAVEL_SNAPSHOT_DIR, while
    # it goes on. With `restore`, without `total_steps`: a step is a second of its run.
    dump: NotRequired[str | None]
    restore: NotRequired[str | None]  # Shell line that gives back what `dump` saved there, before a start.
    image: NotRequired[str | None]  # Container image that the ranks run in, with its own interpreter and packages.
    # Inputs that the job only reads, by name: an absolute path on the job's nodes, or a URL that each node fetches
    # once. A rank has the place of `train` in GAVEL_DATA_TRAIN.
    data: NotRequired[Mapping[str, str]]
    code: NotRequired[CodeOfJob | None]  # A stored code version: the job runs in a copy of its own, from `workdir`.
    labels: NotRequired[Mapping[str, str]]
    # Known speed of the whole gang by accelerator type, in steps per second; it is measured anyway.
    throughputs: NotRequired[Mapping[str, float]]
    preemptible: NotRequired[bool]
    # Each step doubles the weight among your jobs; in a tier that serves in order those that follow one another go by
    # it. Default, and the most that a user may state: the tier's.
    priority: NotRequired[int | None]
    max_retries: NotRequired[int]  # How many times a failed program is started again.
    after: NotRequired[Sequence[str]]  # Jobs that must complete first; this job fails if one of them does not.
    # Names of further arguments that change the speed, and so belong to the default kind.
    kind_args: NotRequired[Sequence[str]]
    # Of what its user is notified: end, failure, no-progress; []: nothing. Default: what the user chose for all jobs
    # (PUT /v1/notification-settings).
    notify: NotRequired[Sequence[Literal["end", "failure", "no-progress"]] | None]
    # Execution plans, of which the rounds choose one for each size and accelerator type: objects, or texts such as
    # `tensor=2,pipeline=1`.
    plans: NotRequired[Sequence[PlanOfJob | str]]
    # Samples of one step of an elastic job, the same at every size; each of `sizes` divides it.
    global_batch: NotRequired[int | None]
    # Samples that one update of an elastic job may grow to, where the noise of its gradients makes that pay, for a
    # program that calls `job.gain`; null: each update is one step.
    max_global_batch: NotRequired[int | None]
    # Of an elastic job: the numbers of accelerators that its gang may have, or a range such as 1-8, of which those that
    # divide `global_batch` count. The rounds choose one. In place of `scale_factor`.
    sizes: NotRequired[Sequence[int] | str]
    # interactive: a session for people, such as JupyterLab or a shell. It is never preempted, and ends by `longest_s`
    # or `idle_s`, or with its program. service: an inference service, whose replicas have no end.
    mode: NotRequired[Literal["batch", "interactive", "service"]]
    # Most seconds that an interactive session lasts, from the start of its program. Default: 4 hours, or the most that
    # its tier allows if that is less.
    longest_s: NotRequired[float | None]
    # The session ends when for so many seconds nobody was connected and it printed nothing. Default: it does not.
    idle_s: NotRequired[float | None]
    # Unix time at which an interactive session starts, with its workers reserved for it; `longest_s` counts from then.
    # Default: it starts once there is room.
    reserved_at_s: NotRequired[float | None]
    # 0.5: another interactive session that says so, or else a training that fits beside it, may run on the same
    # accelerators. 1: nobody else may.
    accelerator_share: NotRequired[float]
    service: NotRequired[ServiceOfJob | None]  # What an inference service needs besides its program.
    cpu_cores: NotRequired[int]  # CPU cores of its node that each rank needs.
    memory_bytes: NotRequired[int]  # Memory of its node that each rank needs.
    # Accelerator types that it may run on; with a leading `!` one that it may not run on. Empty: any type.
    accelerator_types: NotRequired[Sequence[str]]
    accelerator_memory_bytes: NotRequired[int]  # Memory that each accelerator must have. Default: any.
    node_labels: NotRequired[Mapping[str, str]]  # Labels that each node of the gang must have.
    # A label of nodes, such as topology.kubernetes.io/zone or rack, of which all nodes of the gang have one value.
    topology_label: NotRequired[str | None]
    regions: NotRequired[Sequence[str]]  # Regions that it may be in. Empty: any.
    data_region: NotRequired[str | None]  # Region where its data set is; with `data_bytes`.
    data_bytes: NotRequired[int]  # Size of that data set, which is copied where it moves.


class VersionOfService(TypedDict):
    """What a new version of a service's program has; what is left out stays. `env` replaces all variables."""

    argv: NotRequired[Sequence[str] | None]
    env: NotRequired[Mapping[str, str] | None]
    image: NotRequired[str | None]


class JobPatch(TypedDict):
    """What to change of an unfinished job; what is left out stays. `labels` replace all labels."""

    replicas: NotRequired[int | None]  # Of a service, from its replicas_min to its replicas_max.
    replicas_min: NotRequired[int | None]  # The fewest that a service has.
    replicas_max: NotRequired[int | None]  # The most that a service has.
    demand: NotRequired[float | Literal["measured"] | None]  # Of a service with a rate: requests/s, or `measured`.
    rate: NotRequired[float | Mapping[str, float] | None]  # Of a service with a rate: the new one.
    headroom: NotRequired[float | None]  # Of a service with a rate: the new one.
    new_version: NotRequired[VersionOfService | None]  # Of a service: what its replicas run from now on.
    weight: NotRequired[float | None]
    priority: NotRequired[int | None]
    labels: NotRequired[Mapping[str, str] | None]


class SessionExtend(TypedDict):
    """By how much longer an interactive session lasts."""

    by_s: float  # Seconds, added to those that it was granted.


class JobResubmit(TypedDict):
    """What differs from the job that is submitted again; what is left out is as it was. `env` adds variables."""

    name: NotRequired[str | None]
    total_steps: NotRequired[int | None]
    scale_factor: NotRequired[int | None]
    tier: NotRequired[str | None]
    weight: NotRequired[float | None]
    deadline_at_s: NotRequired[float | None]  # One that has passed meanwhile is left out.
    env: NotRequired[Mapping[str, str]]
    labels: NotRequired[Mapping[str, str] | None]  # Replace all labels.
    priority: NotRequired[int | None]
    max_retries: NotRequired[int | None]
    from_checkpoint: NotRequired[bool]  # Begin with the accepted checkpoint of the old job, and not at the first step.


class JobBatchSubmit(TypedDict):
    """Jobs to submit together: all or none."""

    jobs: Sequence[JobSubmit]


class JobArraySubmit(TypedDict):
    """The same job many times: once for each combination of the parameters' values, or `count` times."""

    job: JobSubmit
    parameters: NotRequired[Mapping[str, Sequence[str]]]
    count: NotRequired[int | None]  # Instead of parameters.


class CancelBatch(TypedDict):
    """Which unfinished jobs to cancel: those that match every given filter, except those to keep."""

    ids: NotRequired[Sequence[str] | None]
    label: NotRequired[str | None]
    array_id: NotRequired[str | None]
    keep: NotRequired[Sequence[str]]


class CodeFile(TypedDict):
    """One file of a code version."""

    path: str  # Below the folder, with `/`.
    size_bytes: NotRequired[int]
    chunks: NotRequired[Sequence[str]]  # SHA-256 of each 262144 bytes, in order; the last may be shorter.
    is_executable: NotRequired[bool]
    target: NotRequired[str]  # What a symbolic link leads to; empty for a plain file.


class CodeVersionPut(TypedDict):
    """All files of a working directory."""

    files: Sequence[CodeFile]


class CodeFetch(TypedDict):
    """A git repository, and what of it a job is to run."""

    git_url: str  # Without user and password: these are secrets, see `secrets`.
    git_ref: NotRequired[str]  # A branch, a tag, or all characters of a commit.
    # Names of your secrets. Of these git is given GIT_TOKEN, GIT_USERNAME and GIT_SSH_KEY.
    secrets: NotRequired[Sequence[str]]
    script: NotRequired[str]  # A file that has to be there; empty: none.
