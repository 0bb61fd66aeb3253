"""A store for simulations (scheduler, requests, records): all in dictionaries, nothing is durable."""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gavel.errors import StaleVersion
from gavel.ports import (
    Changes,
    Snapshot,
    ThroughputEstimate,
)
from gavel.store.memory_jobs import JobsInMemory
from gavel.store.rules import (
    DEFAULT_TIER,
    KEEP_OPERATIONS,
    KEEP_ROUNDS,
    JobIds,
    Progress,
    check_amended,
    check_limit,
    check_pending,
    check_progress,
    check_round,
    check_unfinished,
    count_preemptions,
    gone_checkpoints,
    next_tier,
    no_operation,
    no_round,
    tenant_audit_entry,
)
from gavel.types import (
    ApplicationResource,
    Cluster,
    InfeasibleType,
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
    StartupTimes,
    Tier,
    Usage,
    in_plan,
    in_region,
    in_size,
)
from gavel.types.autopilot import AutopilotSetting
from gavel.types.copying import changed


class MemoryStore(JobsInMemory):
    """A SchedulerStore, RequestStore and RecordStore in memory, for one thread.

    `random_bits` makes the random part of job ids; by default the same in every run.
    """

    def __init__(
        self,
        *,
        keep_rounds: int = KEEP_ROUNDS,
        random_bits: Callable[[int], int] | None = None,
    ) -> None:
        ids = JobIds(random_bits or random.Random(0).getrandbits)  # noqa: S311 - not for secrets
        super().__init__(ids)
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
        self._autopilot = AutopilotSetting()
        self._preemptions = 0
        self._startup_times: tuple[StartupTimes, ...] = ()
        self._infeasible: tuple[InfeasibleType, ...] = ()
        self._throughputs: tuple[ThroughputEstimate, ...] = ()
        self._tiers = {DEFAULT_TIER.name: DEFAULT_TIER}
        self._usage: dict[tuple[str, str], Usage] = {}
        self._predictions: dict[JobId, Prediction] = {}  # of jobs that have not ended
        self._settled: deque[Prediction] = deque(maxlen=1000)

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a consistent view; the same object as before if nothing was written since."""
        if self._snapshot is None:
            newest = self._newest_round()
            rounds = tuple(self._rounds[index] for index in (newest - 1, newest) if index in self._rounds)
            self._snapshot = Snapshot(
                version=self._version,
                jobs=dict(self._active),
                tiers=dict(sorted(self._tiers.items())),
                round_records=rounds,
                commands=tuple(self._commands.values()),
                nodes={node.name: node for node in self._nodes},
                resources=self._resources,
                usage=self._newest_usage(),
                policy=self._policy,
                autopilot=self._autopilot,
                preemptions=self._preemptions,
                startup_times=self._startup_times,
                infeasible=self._infeasible,
            )
        return self._snapshot

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes or none; return the new version.

        Raises StaleVersion, NotFound (a job), InvariantViolated.
        """
        if expected_version != self._version:
            raise StaleVersion(
                f"the scheduler's version is {self._version}, not {expected_version}: another scheduler committed; "
                "take a new snapshot and decide again"
            )
        jobs = self._checked(changes)
        self._version += 1
        for job in jobs.values():
            self._put_job(job)
        self._add_made(changes.made, changes.made_at_s)
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
        if changes.round is not None:
            index = changes.round.plan.round_index
            self._rounds[index] = changes.round
            self._rounds.pop(index - self._keep_rounds, None)
        self._cluster = self._cluster if changes.cluster is None else changes.cluster
        self._throughputs = self._throughputs if changes.throughputs is None else changes.throughputs
        self._nodes = self._nodes if changes.nodes is None else changes.nodes
        self._resources = self._resources if changes.resources is None else changes.resources
        self._policy = self._policy if changes.policy is None else changes.policy
        self._autopilot = self._autopilot if changes.autopilot is None else changes.autopilot
        self._infeasible = self._infeasible if changes.infeasible is None else changes.infeasible
        self._startup_times = self._startup_times if changes.startup_times is None else changes.startup_times
        self._snapshot = None
        return self._version

    def _settle(self, jobs: Mapping[JobId, Job]) -> None:
        for job in jobs.values():
            prediction = self._predictions.pop(job.id, None) if job.state.is_terminal else None
            if prediction is not None and job.state is JobState.COMPLETED:
                ended = replace(prediction, started_at_s=job.started_at_s, finished_at_s=job.finished_at_s)
                self._settled.append(ended)

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """What was expected of the jobs that completed last, and what became of it; newest first; limit 1..1000."""
        check_limit(limit, 1000)
        return tuple(sorted(self._settled, key=lambda each: (-(each.finished_at_s or 0.0), each.job_id))[:limit])

    def _checked(self, changes: Changes) -> dict[JobId, Job]:
        """Return the jobs to store, with the fields that the scheduler does not own unchanged.

        Raises StaleVersion, NotFound or InvariantViolated for a change that is not allowed.
        """
        jobs: dict[JobId, Job] = {}
        gone = gone_checkpoints(changes.events)
        for job in changes.jobs:
            stored = jobs.get(job.id) or self.job(job.id)
            if (stored.state, stored.generation, stored.steps_done) != (job.state, job.generation, job.steps_done):
                check_progress(job.id, _progress(stored), _progress(job), is_gone=job.id in gone)
            jobs[job.id] = changed(
                job,
                spec=in_region(in_plan(in_size(stored.spec, job.size), job.plan), job.residence.region),
                submitted_at_s=stored.submitted_at_s,
                cancel_requested=stored.cancel_requested,
                pause_requested=stored.pause_requested,
                version=stored.version + 1,
            )
        for each in changes.operations:
            current = self._operations.get(each.id)
            check_unfinished(each.id, current.state if current else None)
        if changes.amended is not None:
            amended = self._rounds.get(changes.amended.round_index)
            check_amended(changes.amended, amended.plan if amended else None)
        if changes.round is not None:
            check_round(changes.round.plan, self._newest_round())
        return jobs

    def _newest_round(self) -> int:
        return next(reversed(self._rounds), 0)

    # --- rounds and what was seen -------------------------------------------------------------------------------

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Return the plans with round_index < `before`, newest first; limit 1..1000."""
        check_limit(limit, 1000)
        newest_first = (self._rounds[index].plan for index in reversed(self._rounds))
        return tuple(plan for plan in newest_first if before is None or plan.round_index < before)[:limit]

    def round(self, round_index: int | None = None) -> RoundRecord:
        """Return one whole round; with None the newest. Raises NotFound."""
        index = self._newest_round() if round_index is None else round_index
        if index not in self._rounds:
            raise no_round(round_index)
        return self._rounds[index]

    def cluster(self) -> Cluster:
        """Return the cluster as last committed by the scheduler; empty before its first tick."""
        return self._cluster

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """Return the estimator's table as last committed."""
        return self._throughputs

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return the status of each node as last committed by the scheduler, sorted by name."""
        return self._nodes

    def resources(self) -> tuple[ApplicationResource, ...]:
        """Return the ephemeral resources of applications, as last committed by the scheduler."""
        return self._resources

    # --- commands -----------------------------------------------------------------------------------------------

    def add_command(self, kind: str, *, subject: str, body: Mapping[str, Any], by: str, now_s: float) -> Operation:
        """The new operation, pending until the scheduler applies it. Raises StoreUnavailable when too many wait."""
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
        """Return a command's operation, with its result once it has ended. Raises NotFound, also long after its end."""
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
        """Return what tiers used in a month (`2026-11`), sorted by tier."""
        return tuple(each for (_, of_month), each in sorted(self._usage.items()) if of_month == month)

    def _add_usage(self, part: Usage) -> None:
        before = self._usage.get((part.tier, part.month), Usage(tier=part.tier, month=part.month))
        self._usage[part.tier, part.month] = before.plus(part)

    def _newest_usage(self) -> dict[tuple[str, str], Usage]:
        months = sorted({month for _, month in self._usage})[-2:]
        return {key: each for key, each in self._usage.items() if key[1] in months}

    # --- tiers --------------------------------------------------------------------------------------------------

    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers, sorted by name."""
        return tuple(sorted(self._tiers.values(), key=lambda tier: tier.name))

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion, NotFound, InvalidRequest."""
        new = replace(tier, version=next_tier(tier, self._tiers, expected_version))
        self._add_audit(tenant_audit_entry("tier", self._tiers.get(new.name), new, by, now_s))
        self._tiers[new.name] = new
        self._jobs_per_tier = {each.name: each.max_jobs for each in self._tiers.values() if each.max_jobs is not None}
        self._snapshot = None
        return new


def _progress(job: Job) -> Progress:
    return Progress(
        state=job.state, generation=job.generation, steps_done=job.steps_done, total_steps=job.spec.total_steps or 0
    )
