"""`gavel.ports.Store` in dictionaries, for the simulator and for tests: same answers, one thread, nothing durable."""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter
from typing import Any

from gavel.errors import Conflict, NotFound, StaleVersion
from gavel.ports import (
    Changes,
    Feed,
    Snapshot,
    ThroughputEstimate,
)
from gavel.store.memory_jobs import JobsInMemory
from gavel.store.rules import (
    DEFAULT_TIER,
    KEEP_OPERATIONS,
    KEEP_ROUNDS,
    TOKEN_ID_DIGITS,
    JobIds,
    Progress,
    check_amended,
    check_limit,
    check_pending,
    check_progress,
    check_round,
    check_token_hash,
    check_unfinished,
    check_user,
    count_preemptions,
    next_tier,
    no_operation,
    no_round,
    tenant_told,
    token_taken_back,
    token_told,
)
from gavel.types import (
    ApplicationResource,
    BearerToken,
    Cluster,
    Identity,
    Job,
    JobId,
    JobState,
    NodeStatus,
    Operation,
    OperationId,
    OperationState,
    Prediction,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    Usage,
    User,
)


class MemoryStore(JobsInMemory):
    """A store that forgets. `random_bits` makes the random part of job ids; by default the same in every run."""

    def __init__(
        self,
        *,
        keep_rounds: int = KEEP_ROUNDS,
        jobs_per_user: int | None = None,
        random_bits: Callable[[int], int] | None = None,
    ) -> None:
        ids = JobIds(random_bits or random.Random(0).getrandbits)  # noqa: S311 - not for secrets
        super().__init__(ids, jobs_per_user)
        self._keep_rounds = keep_rounds
        self._version = 0
        self._sequence_of_operations = 0
        self._rounds: dict[int, RoundRecord] = {}
        self._operations: dict[OperationId, Operation] = {}
        self._commands: dict[OperationId, Operation] = {}  # those that are pending
        self._nodes: tuple[NodeStatus, ...] = ()
        self._resources: tuple[ApplicationResource, ...] = ()
        self._cluster = Cluster()
        self._policy = ""
        self._preemptions = 0
        self._throughputs: tuple[ThroughputEstimate, ...] = ()
        self._tiers = {DEFAULT_TIER.name: DEFAULT_TIER}
        self._users: dict[str, User] = {}
        self._usage: dict[tuple[str, str], Usage] = {}
        self._predictions: dict[JobId, Prediction] = {}  # of jobs that have not ended
        self._settled: deque[Prediction] = deque(maxlen=1000)
        self._tokens: dict[str, Identity] = {}
        self._token_times: dict[str, float] = {}

    def close(self) -> None:
        """Nothing to let go of."""

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A consistent view for deciding; the same object as before if nothing was written since."""
        if self._snapshot is None:
            newest = self._newest_round()
            rounds = tuple(self._rounds[index] for index in (newest - 1, newest) if index in self._rounds)
            self._snapshot = Snapshot(
                version=self._version,
                jobs=dict(self._active),
                tiers=dict(sorted(self._tiers.items())),
                rounds=rounds,
                commands=tuple(self._commands.values()),
                nodes={node.name: node for node in self._nodes},
                resources=self._resources,
                usage=self._newest_usage(),
                policy=self._policy,
                preemptions=self._preemptions,
            )
        return self._snapshot

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes or none; the new version. Raises StaleVersion, NotFound (a job), InvariantViolated."""
        if expected_version != self._version:
            raise StaleVersion(
                f"the scheduler's version is {self._version}, not {expected_version}: another scheduler committed; "
                "take a new snapshot and decide again"
            )
        jobs = self._checked(changes)
        self._version += 1
        for job in jobs.values():
            self._put_job(job)
        for event in changes.events:
            self._add_event(event)
        self._put_operations(changes.operations)
        for entry in changes.audit:
            self._add_audit(entry)
        self._preemptions += count_preemptions(changes.audit)
        for part in changes.usage:
            self._add_usage(part)
        self._predictions = {each.job_id: each for each in changes.predictions} | self._predictions
        self._settle(jobs)
        if changes.amended is not None:
            index = changes.amended.round_index
            self._rounds[index] = replace(self._rounds[index], plan=changes.amended)
            self._note_write(index)
        if changes.round is not None:
            index = changes.round.plan.round_index
            self._rounds[index] = changes.round
            self._note_write(index)
            self._rounds.pop(index - self._keep_rounds, None)
            self._written.pop(index - self._keep_rounds, None)
        self._cluster = self._cluster if changes.cluster is None else changes.cluster
        self.edition += changes.cluster is not None
        self._throughputs = self._throughputs if changes.throughputs is None else changes.throughputs
        self._nodes = self._nodes if changes.nodes is None else changes.nodes
        self._resources = self._resources if changes.resources is None else changes.resources
        self._policy = self._policy if changes.policy is None else changes.policy
        self._snapshot = None
        return self._version

    def _settle(self, jobs: Mapping[JobId, Job]) -> None:
        for job in jobs.values():
            known = self._predictions.pop(job.id, None) if job.state.is_terminal else None
            if known is not None and job.state is JobState.COMPLETED:
                ended = replace(known, started_at_s=job.started_at_s, finished_at_s=job.finished_at_s)
                self._settled.append(ended)

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """What was expected of the jobs that completed last, and what became of it; newest first; limit 1..1000."""
        check_limit(limit, 1000)
        return tuple(sorted(self._settled, key=lambda each: (-(each.finished_at_s or 0.0), each.job_id))[:limit])

    def _checked(self, changes: Changes) -> dict[JobId, Job]:
        """The jobs to store, with what the scheduler does not own kept; raises for any change that may not be."""
        jobs: dict[JobId, Job] = {}
        for job in changes.jobs:
            stored = jobs.get(job.id) or self.job(job.id)
            check_progress(job.id, _progress(stored), _progress(job))
            jobs[job.id] = replace(
                job,
                spec=stored.spec,
                submitted_at_s=stored.submitted_at_s,
                cancel_requested=stored.cancel_requested,
                pause_requested=stored.pause_requested,
                version=stored.version + 1,
            )
        for each in changes.operations:
            known = self._operations.get(each.id)
            check_unfinished(each.id, known.state if known else None)
        if changes.amended is not None:
            amended = self._rounds.get(changes.amended.round_index)
            check_amended(changes.amended, amended.plan if amended else None)
        if changes.round is not None:
            check_round(changes.round.plan, self._newest_round())
        return jobs

    def _newest_round(self) -> int:
        return next(reversed(self._rounds), 0)

    # --- rounds and what was seen -------------------------------------------------------------------------------

    def feed(self, *, after: int | None = None, limit: int = 200) -> Feed:
        """Jobs and rounds written after a position, all at once; None: nothing but where the feed is now."""
        check_limit(limit, 1000)
        recent = takewhile(lambda each: after is not None and each[1] > after, reversed(self._written.items()))
        items = [(at, self._jobs[what] if isinstance(what, str) else self._rounds[what].plan) for what, at in recent]
        return Feed(position=self._writes, newest=self._writes, items=tuple(reversed(items)))

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Newest first, with round_index < before; limit 1..1000."""
        check_limit(limit, 1000)
        newest_first = (self._rounds[index].plan for index in reversed(self._rounds))
        return tuple(plan for plan in newest_first if before is None or plan.round_index < before)[:limit]

    def round(self, round_index: int | None = None) -> RoundRecord:
        """One round whole; None: the newest. Raises NotFound."""
        index = self._newest_round() if round_index is None else round_index
        if index not in self._rounds:
            raise no_round(round_index)
        return self._rounds[index]

    def cluster(self) -> Cluster:
        """The cluster as last committed by the scheduler; empty before its first tick."""
        return self._cluster

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """The estimator's table as last committed."""
        return self._throughputs

    def nodes(self) -> tuple[NodeStatus, ...]:
        """What the scheduler last committed of each node, sorted by name."""
        return self._nodes

    def resources(self) -> tuple[ApplicationResource, ...]:
        """The ephemeral resources of applications, as last committed by the scheduler."""
        return self._resources

    # --- commands -----------------------------------------------------------------------------------------------

    def add_command(self, kind: str, *, subject: str, body: Mapping[str, Any], by: str, now_s: float) -> Operation:
        """A wish that the scheduler will apply. Raises StoreUnavailable when too many wait."""
        check_pending(len(self._commands))
        self._sequence_of_operations += 1
        operation = Operation(
            id=self._ids.next(now_s),
            sequence=self._sequence_of_operations,
            kind=kind,
            subject=subject,
            body=body,
            by=by,
            created_at_s=now_s,
        )
        self._operations[operation.id] = self._commands[operation.id] = operation
        self._snapshot = None
        return operation

    def operation(self, operation_id: OperationId) -> Operation:
        """What became of a command. Raises NotFound, also for one that ended long ago."""
        if operation_id not in self._operations:
            raise no_operation(operation_id)
        return self._operations[operation_id]

    def _put_operations(self, operations: tuple[Operation, ...]) -> None:
        for each in operations:
            self._operations[each.id] = self._commands[each.id] = each
            if each.state is not OperationState.PENDING:
                del self._commands[each.id]
                ended = (name for name in self._operations if name not in self._commands)
                if len(self._operations) - len(self._commands) > KEEP_OPERATIONS:
                    del self._operations[next(ended)]

    # --- usage --------------------------------------------------------------------------------------------------

    def usage(self, month: str) -> tuple[Usage, ...]:
        """What tiers used in a month (`2026-11`), sorted by tier."""
        return tuple(each for (_, of_month), each in sorted(self._usage.items()) if of_month == month)

    def _add_usage(self, part: Usage) -> None:
        before = self._usage.get((part.tier, part.month), Usage(tier=part.tier, month=part.month))
        self._usage[part.tier, part.month] = replace(
            part,
            accelerator_hours=before.accelerator_hours + part.accelerator_hours,
            cost_usd=before.cost_usd + part.cost_usd,
        )

    def _newest_usage(self) -> dict[tuple[str, str], Usage]:
        months = sorted({month for _, month in self._usage})[-2:]
        return {key: each for key, each in self._usage.items() if key[1] in months}

    # --- tenants ------------------------------------------------------------------------------------------------

    def tiers(self) -> tuple[Tier, ...]:
        """Sorted by name."""
        return tuple(sorted(self._tiers.values(), key=lambda tier: tier.name))

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion, NotFound, InvalidRequest."""
        new = replace(tier, version=next_tier(tier, self._tiers, expected_version))
        self._add_audit(tenant_told("tier", self._tiers.get(new.name), new, by, now_s))
        self._tiers[new.name] = new
        self._jobs_per_tier = {each.name: each.max_jobs for each in self._tiers.values() if each.max_jobs is not None}
        self._snapshot = None
        self.edition += 1
        return new

    def users(self) -> tuple[User, ...]:
        """Sorted by name."""
        return tuple(sorted(self._users.values(), key=lambda user: user.name))

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier, InvalidRequest for none."""
        check_user(user, self._tiers)
        self._add_audit(tenant_told("user", self._users.get(user.name), user, by, now_s))
        self._users[user.name] = user
        self.edition += 1
        return user

    def add_token(
        self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float, by: str = ""
    ) -> None:
        """Remember the SHA-256 of a new token (hex). Raises InvalidRequest, Conflict if another holder has it."""
        check_token_hash(token_hash)
        holder = Identity(user=user, scope=scope, job_id=job_id)
        if token_hash not in self._tokens:
            self._token_times[token_hash] = now_s
            for entry in token_told(holder, by, now_s):
                self._add_audit(entry)
        if self._tokens.setdefault(token_hash, holder) != holder:
            raise Conflict("this token already belongs to somebody; make a new one")

    def tokens(self, user: str) -> tuple[BearerToken, ...]:
        """The user's bearer tokens, oldest first; not those of its jobs."""
        held = [(self._token_times[key], key, holder) for key, holder in self._tokens.items() if holder.user == user]
        return tuple(
            BearerToken(id=key[:TOKEN_ID_DIGITS], user=user, scope=holder.scope, created_at_s=created_at_s)
            for created_at_s, key, holder in sorted(held, key=itemgetter(0, 1))
            if holder.scope is not Scope.JOB
        )

    def revoke_token(self, user: str, token_id: str, *, by: str, now_s: float) -> None:
        """Forget a token: it opens nothing any more. Raises NotFound."""
        found = next((each for each in self.tokens(user) if each.id == token_id), None)
        if found is None:
            raise NotFound(f"user {user} has no token {token_id}")
        for key in [key for key in self._tokens if key.startswith(token_id)]:
            del self._tokens[key]
        self.edition += 1
        self._add_audit(token_taken_back(found, by, now_s))
        self.edition += 1

    def identify(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody."""
        if token_hash not in self._tokens:
            return None
        holder = self._tokens[token_hash]
        return replace(holder, tiers=self._users[holder.user].tiers if holder.user in self._users else ())


def _progress(job: Job) -> Progress:
    return Progress(state=job.state, token=job.token, steps_done=job.steps_done, total_steps=job.spec.total_steps)
