"""Who keeps what must not be lost."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from gavel.ports.estimator import ThroughputEstimate
from gavel.types import (
    ApplicationResource,
    BearerToken,
    Cluster,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    NodeStatus,
    Operation,
    OperationId,
    Prediction,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    Usage,
    User,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One entry of a job's story. `kind` is a noun with a verb: `lease.extended`. `sequence` grows over all jobs."""

    job_id: JobId
    at_s: float
    kind: str
    message: str = ""
    round_index: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Answer to a submit; `created` is False when the idempotency key had been seen with the same body."""

    job: Job
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """What the scheduler decides on: every job that is not terminal, the tiers, the newest rounds.

    `rounds` holds the newest rounds, oldest first, at most two: the one in force and the one planned ahead.
    `version` grows with each commit of the scheduler and with nothing else. `commands` are the pending operations,
    oldest first; `nodes` what is kept of each node by its name; `usage` of the newest two months by (tier, month);
    `policy` the one that an operator switched to, empty: that of the settings; `preemptions` how many gangs rounds
    have ever stopped or moved.
    """

    version: int
    jobs: Mapping[JobId, Job]
    tiers: Mapping[str, Tier]
    rounds: tuple[RoundRecord, ...] = ()
    commands: tuple[Operation, ...] = ()
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    resources: tuple[ApplicationResource, ...] = ()
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    policy: str = ""
    preemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who changed what, and from what to what (JSON; `before` None: it is new).

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

    `jobs` replace the scheduler's fields of the stored rows (never spec, nor the cancel wish set by the API meanwhile).
    `operations` are commands with what became of them so far; `amended` replaces the plan of a stored round; `nodes`
    replace all that is kept of nodes. `policy` is in force from the next round on. `usage` is added to what the
    tiers used before. `predictions` of jobs that have one already are left out.
    """

    jobs: tuple[Job, ...] = ()
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

    def __bool__(self) -> bool:
        lists = self.jobs or self.events or self.operations or self.audit or self.throughputs or self.usage
        replaced = any(each is not None for each in (self.nodes, self.resources, self.policy))
        return bool(lists or self.round or self.cluster or self.amended or replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list holds; None: any."""

    states: tuple[JobState, ...] | None = None
    user: str | None = None
    tier: str | None = None
    label: tuple[str, str] | None = None
    array_id: JobId | None = None
    ids: tuple[JobId, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """What a user changes of an unfinished job; None: leave it as it is. `labels` replace all."""

    weight: float | None = None
    priority: int | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of jobs, newest first, and the cursor of the next (None: this was the last)."""

    jobs: tuple[Job, ...]
    next_cursor: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What was written after a position, as it is now, each with its own, oldest first; ask again from `position`.

    A position counts commits of anybody. A job or plan that was written again later is only in the later feed, so who
    reads on from position to position ends with everything as it is. `newest` is the position of the newest commit.
    """

    position: int
    newest: int
    items: tuple[tuple[int, Job | RoundPlan], ...] = ()


class Store(Protocol):
    """Everything durable. A call that returned has been committed.

    `edition` grows, before the call returns, when this process has written tiers, users or the cluster, or taken a
    token back: what was read of them under another edition may be out of date.
    """

    @property
    def edition(self) -> int:
        """How often this process has changed the rules."""

    # the scheduler's side
    def snapshot(self) -> Snapshot:
        """A consistent view for deciding."""

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes in one transaction; the new version. Raises StaleVersion, StoreUnavailable."""

    # the API's side
    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Job and event in one transaction. Raises KeyReused, InvalidRequest (`after`), LimitReached."""

    def start_submit(
        self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float
    ) -> "Future[tuple[Submitted, ...]]":
        """`submit_many` of one without waiting; the answer comes from another thread. Raises StoreUnavailable."""

    def submit_many(
        self, specs: Sequence[JobSpec], *, key: str | None, body_hash: str, now_s: float, is_array: bool = False
    ) -> tuple[Submitted, ...]:
        """All of them, of one user, or none, in one transaction.

        Raises KeyReused, InvalidRequest (`after`), LimitReached.
        """

    def submitted(self, user: str, key: str, *, body_hash: str) -> tuple[Job, ...]:
        """The jobs that this key made before; empty: none. Raises KeyReused for another body."""

    def request_cancel(self, job_id: JobId, *, now_s: float, by: str = "") -> Job:
        """Record the wish; idempotent. Raises NotFound, Conflict when the job has already ended otherwise.

        `by` here and below: who wishes, for the audit log; empty: the job's user.
        """

    def request_cancel_all(
        self, where: JobFilter, *, keep: Sequence[JobId] = (), now_s: float, by: str = ""
    ) -> tuple[JobId, ...]:
        """Record the wish for every unfinished job that fits but those to keep, in one transaction; their ids."""

    def request_pause(self, job_id: JobId, *, is_paused: bool, now_s: float, by: str = "") -> Job:
        """Record the wish to pause or go on; idempotent. Raises NotFound, Conflict when the job has ended."""

    def edit_job(
        self, job_id: JobId, edit: JobEdit, *, expected_version: int | None, now_s: float, by: str = ""
    ) -> Job:
        """Change what a user may change. Raises NotFound, StaleVersion, Conflict when the job has ended."""

    def job(self, job_id: JobId) -> Job:
        """Raises NotFound."""

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Newest first."""

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Number of jobs by (state, tier)."""

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Events of a job with sequence > after, oldest first."""

    def feed(self, *, after: int | None = None, limit: int = 200) -> Feed:
        """Jobs and rounds written after a position; None: nothing but where the feed is now.

        About `limit` of each, and never part of a commit.
        """

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Newest first, with round_index < before."""

    def round(self, round_index: int | None = None) -> RoundRecord:
        """One round whole; None: the newest. Raises NotFound."""

    def add_command(self, kind: str, *, subject: str, body: Mapping[str, Any], by: str, now_s: float) -> Operation:
        """A wish, durable, that the scheduler is woken to apply. Raises StoreUnavailable when too many wait."""

    def operation(self, operation_id: OperationId) -> Operation:
        """What became of a command. Raises NotFound, also for one that ended long ago."""

    def nodes(self) -> tuple[NodeStatus, ...]:
        """What the scheduler last committed of each node, sorted by name."""

    def resources(self) -> tuple[ApplicationResource, ...]:
        """The ephemeral resources of applications, as last committed by the scheduler."""

    def cluster(self) -> Cluster:
        """The cluster as last committed by the scheduler; empty before its first tick."""

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """The estimator's table as last committed."""

    def audit(
        self, *, subject: str | None = None, user: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Decisions that touched a subject or a user (None: any), newest first, with sequence < before."""

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """What was expected of the jobs that completed last, and what became of it; newest first."""

    def usage(self, month: str) -> tuple[Usage, ...]:
        """What tiers used in a month (`2026-11`), sorted by tier; tiers that used nothing are left out."""

    def tiers(self) -> tuple[Tier, ...]:
        """Sorted by name."""

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion."""

    def users(self) -> tuple[User, ...]:
        """Sorted by name."""

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier."""

    def add_token(
        self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float, by: str = ""
    ) -> None:
        """Remember the SHA-256 of a new token (hex)."""

    def identify(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody."""

    def tokens(self, user: str) -> tuple[BearerToken, ...]:
        """The user's bearer tokens, oldest first; not those of its jobs."""

    def revoke_token(self, user: str, token_id: str, *, by: str, now_s: float) -> None:
        """Forget a token: it opens nothing any more. Raises NotFound."""

    def close(self) -> None:
        """Finish what is queued, then let go of the database."""
