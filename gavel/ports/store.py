"""The ports of the store, which keeps everything that must not be lost."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from gavel.ports.autopilot import AutopilotStore
from gavel.ports.estimator import ThroughputEstimate
from gavel.ports.federated import FederatedStore
from gavel.ports.job_queries import JobEdit, JobFilter, Page
from gavel.ports.job_users import JobUserStore
from gavel.ports.notifications import NotificationStore
from gavel.types import (
    ApplicationResource,
    BearerToken,
    Cluster,
    Identity,
    InfeasibleType,
    Job,
    JobId,
    JobSpec,
    JobState,
    MetricPoint,
    NodeStatus,
    Operation,
    OperationId,
    Prediction,
    RoundPlan,
    RoundRecord,
    Scope,
    StartupTimes,
    Tier,
    Usage,
    User,
)
from gavel.types.autopilot import AutopilotSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One entry of a job's history. `kind` is a noun with a verb: `lease.extended`. `sequence` grows over all jobs."""

    job_id: JobId
    at_s: float
    kind: str
    message: str = ""
    round_index: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The result of a submission; `created` is False if the idempotency key was used before with the same body."""

    job: Job
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """What the scheduler decides on: every job that is not terminal, the tiers, the newest rounds.

    `round_records` holds the newest rounds, oldest first, at most two: the one in force and the one planned ahead.
    `version` grows with each commit of the scheduler and with nothing else. `commands` are the pending operations,
    oldest first; `nodes` the status of each node by its name; `usage` of the newest two months by (tier, month);
    `policy` the one that an operator switched to, empty: that of the settings; `preemptions` how many gangs rounds
    have ever stopped or moved; `startup_times` those measured last, by job kind and accelerator type;
    `infeasible` the accelerator types on which job kinds of users were seen not to fit.
    """

    version: int
    jobs: Mapping[JobId, Job]
    tiers: Mapping[str, Tier]
    round_records: tuple[RoundRecord, ...] = ()
    commands: tuple[Operation, ...] = ()
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    resources: tuple[ApplicationResource, ...] = ()
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    policy: str = ""
    preemptions: int = 0
    startup_times: tuple[StartupTimes, ...] = ()
    infeasible: tuple[InfeasibleType, ...] = ()
    autopilot: AutopilotSetting = field(default_factory=AutopilotSetting)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log: who changed what, from `before` to `after` (JSON; `before` None: it is new).

    `subject` is a kind and a name (`tier/gold`, `job/ID`), `action` a noun with a verb, `user` whom it touches. A
    decision of the scheduler is `by` its policy, in the round `round_index`. `sequence` grows; the store gives it.
    """

    at_s: float
    by: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    action: str = "changed"
    user: str = ""
    round_index: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """What one scheduler commit writes, all or nothing.

    `jobs` replace the scheduler's fields of the stored rows: never the spec, nor a cancellation that the API recorded.
    `made` are new jobs, to which the store gives their ids, submitted at `made_at_s`.
    `operations` are commands with what became of them so far; `amended` replaces the plan of a stored round; `nodes`
    replace all that is kept of nodes. `policy` is in force from the next round on. `usage` is added to what the
    tiers used before. `predictions` of jobs that have one already are left out; `startup_times` and
    `infeasible` replace all.
    """

    jobs: tuple[Job, ...] = ()
    made: tuple[JobSpec, ...] = ()
    made_at_s: float = 0.0
    events: tuple[JobEvent, ...] = ()
    round: RoundRecord | None = None
    cluster: Cluster | None = None
    throughputs: tuple[ThroughputEstimate, ...] | None = None
    operations: tuple[Operation, ...] = ()
    audit: tuple[AuditEntry, ...] = ()
    amended: RoundPlan | None = None
    nodes: tuple[NodeStatus, ...] | None = None
    resources: tuple[ApplicationResource, ...] | None = None
    usage: tuple[Usage, ...] = ()
    policy: str | None = None
    predictions: tuple[Prediction, ...] = ()
    startup_times: tuple[StartupTimes, ...] | None = None
    infeasible: tuple[InfeasibleType, ...] | None = None
    autopilot: AutopilotSetting | None = None  # what an operator has set
    metric_points: tuple[MetricPoint, ...] = ()  # grouped by job, in the order of their reports

    def __bool__(self) -> bool:
        lists = self.jobs or self.made or self.events or self.operations or self.audit or self.throughputs or self.usage
        documents = (self.nodes, self.resources, self.policy, self.autopilot, self.startup_times, self.infeasible)
        replaced = any(each is not None for each in documents)
        return bool(lists or self.round or self.cluster or self.amended or replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Jobs and rounds written after a position, as they are now, each with its own position, oldest first.

    The next request asks from `position` on.

    A position counts commits of all processes. A job or plan that was written again later is only in the later feed,
    so a reader that goes on from position to position ends with everything as it is. `newest` is the position of the
    newest commit.
    """

    position: int
    newest: int
    items: tuple[tuple[int, Job | RoundPlan], ...] = ()


class SchedulerStore(Protocol):
    """The store as the scheduler uses it. What a call wrote is committed when it returns."""

    def snapshot(self) -> Snapshot:
        """Return a consistent snapshot to decide on."""

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes in one transaction; return the new version. Raises StaleVersion, StoreUnavailable."""

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """Return the predictions for the jobs that completed last, with their actual ends; newest first."""


class RequestStore(Protocol):
    """The store of users' requests, one at a time. What a call wrote is committed when it returns.

    `by`: who asks, for the audit log; empty: the job's user.
    """

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Add a job and its event in one transaction. Raises KeyReused, InvalidRequest (`after`), LimitReached."""

    def request_cancel(self, job_id: JobId, *, now_s: float, by: str = "") -> Job:
        """Record that the user asked to cancel the job; idempotent. Raises NotFound, Conflict if it ended otherwise."""

    def request_pause(self, job_id: JobId, *, is_paused: bool, now_s: float, by: str = "") -> Job:
        """Record that the user asked to pause or resume; idempotent. Raises NotFound, Conflict if the job has ended."""

    def edit_job(
        self, job_id: JobId, edit: JobEdit, *, expected_version: int | None, now_s: float, by: str = ""
    ) -> Job:
        """Change the fields that a user may change. Raises NotFound, StaleVersion, Conflict when the job has ended."""

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create a tier (expected_version None and no such tier) or replace it. Raises StaleVersion."""

    def add_command(self, kind: str, *, subject: str, body: Mapping[str, Any], by: str, now_s: float) -> Operation:
        """Store a command and wake the scheduler to apply it. Raises StoreUnavailable when too many wait."""


class RetentionStore(Protocol):
    """The store as the leader's clearing uses it: what ended long ago is read, and deleted in parts."""

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""

    def snapshot(self) -> Snapshot:
        """Return a consistent snapshot, with all unfinished jobs."""

    def ended_jobs(self, before_s: float) -> tuple[JobId, ...]:
        """Return ids of jobs that ended before the instant, oldest first, a bounded number; () if there are none."""

    def delete_ended(self, job_ids: Sequence[JobId]) -> None:
        """Delete these jobs of `ended_jobs` with all that is stored of them."""

    def forget_keys(self, before_s: float) -> int:
        """Delete some of the idempotency keys of jobs submitted before the instant; return how many, 0 if none is."""


class RecordStore(Protocol):
    """The records of decisions and observations, as last committed by the scheduler."""

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Return the events of a job with sequence > after, oldest first."""

    def audit(
        self, *, subject: str | None = None, user: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Return the audit entries of a subject or a user (None: any), newest first, with sequence < before."""

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Return rounds, newest first, with round_index < before."""

    def round(self, round_index: int | None = None) -> RoundRecord:
        """Return one complete round; None: the newest. Raises NotFound."""

    def operation(self, operation_id: OperationId) -> Operation:
        """Return a command with its state. Raises NotFound, also for one that ended long ago."""

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return the status of each node as last committed by the scheduler, sorted by name."""

    def resources(self) -> tuple[ApplicationResource, ...]:
        """Return the ephemeral resources of applications, as last committed by the scheduler."""

    def cluster(self) -> Cluster:
        """Return the cluster as last committed by the scheduler; empty before its first tick."""

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """Return the estimator's table as last committed."""

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """Return the predictions for the jobs that completed last, with their actual ends; newest first."""

    def usage(self, month: str) -> tuple[Usage, ...]:
        """Return the usage of tiers in a month (`2026-11`), sorted by tier; tiers that used nothing are left out."""

    def tiers(self) -> tuple[Tier, ...]:
        """Return all tiers, sorted by name."""


class ApiStore(RequestStore, RecordStore, Protocol):
    """The store as the API uses it: requests, records, many jobs at once, lists, the live feed, users and tokens.

    `cache_version` grows when this process writes tiers, users or the cluster, revokes a token or ends a session,
    before that call returns: what was read of them under an older version may be out of date.
    """

    @property
    def autopilot(self) -> AutopilotStore:
        """The decisions of the autopilot."""

    @property
    def notifications(self) -> NotificationStore:
        """The notifications of users."""

    @property
    def federated(self) -> FederatedStore:
        """Which user each person at an OpenID provider is."""

    @property
    def job_users(self) -> JobUserStore:
        """Which uid the jobs of each user run as."""

    @property
    def cache_version(self) -> int:
        """How often this process has written tiers, users or the cluster, revoked a token, or ended a session."""

    def snapshot(self) -> Snapshot:
        """Return a consistent snapshot to decide on."""

    def start_submit(
        self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float
    ) -> "Future[tuple[Submitted, ...]]":
        """Start `submit_many` of one job without waiting; another thread sets the result. Raises StoreUnavailable."""

    def submit_many(
        self, specs: Sequence[JobSpec], *, key: str | None, body_hash: str, now_s: float, is_array: bool = False
    ) -> tuple[Submitted, ...]:
        """Add all the jobs, which are of one user, or none of them, in one transaction.

        Raises KeyReused, InvalidRequest (`after`), LimitReached.
        """

    def submitted(self, user: str, key: str, *, body_hash: str) -> tuple[Job, ...]:
        """Return the jobs that were submitted with this key before, or (). Raises KeyReused for another body."""

    def request_cancel_all(
        self, where: JobFilter, *, keep: Sequence[JobId] = (), now_s: float, by: str = ""
    ) -> tuple[JobId, ...]:
        """Record a cancellation of the unfinished jobs that fit except `keep`, in one transaction; return their IDs."""

    def purge_job(self, job_id: JobId, *, by: str, now_s: float) -> Job:
        """Delete an ended job with all that is stored of it; return it. Raises NotFound, Conflict while it lives."""

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Return a page of jobs, newest first."""

    def non_preemptible_jobs(self) -> tuple[Job, ...]:
        """Return the unfinished jobs that may not be preempted, without services."""

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Return the number of jobs by (state, tier)."""

    def metric_points(self, job_id: JobId) -> tuple[MetricPoint, ...]:
        """Return the points of the curves of a job's metrics, at most about 1,000, by their steps."""

    def feed(self, *, after: int | None = None, limit: int = 200) -> Feed:
        """Return the jobs and rounds written after a position; None: only the position of the feed now.

        About `limit` of each, and never part of a commit.
        """

    def users(self) -> tuple[User, ...]:
        """Return all users, sorted by name."""

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace a user. Raises NotFound for an unknown tier."""

    def add_token(
        self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float, by: str = ""
    ) -> None:
        """Store the SHA-256 of a new token (hex)."""

    def add_job_tokens(self, jobs: Mapping[str, Job], *, now_s: float) -> None:
        """Store the SHA-256 (hex) of tokens of scope JOB with their jobs, in one write; stored ones do not change."""

    def identify(self, token_hash: str) -> Identity | None:
        """Return who holds the token with this SHA-256 (hex), or None."""

    def start_session(self, session_hash: str, token_hash: str, *, now_s: float, ends_at_s: float) -> None:
        """Begin a session of a browser by the SHA-256 of its id (hex). Raises NotFound if nobody holds the token."""

    def session_holder(self, session_hash: str, now_s: float) -> Identity | None:
        """Return who logged in to the session; None if it has ended, or the token has, or there is none."""

    def end_session(self, session_hash: str) -> None:
        """End a session, if there is one."""

    def tokens(self, user: str) -> tuple[BearerToken, ...]:
        """Return the user's bearer tokens, oldest first, without those of its jobs."""

    def revoke_token(self, user: str, token_id: str, *, by: str, now_s: float) -> None:
        """Revoke a token: it is refused from now on. Raises NotFound."""

    def close(self) -> None:
        """Finish the queued writes, then close the database."""
