"""The state of one tick of the driver: what it has observed and decided so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from gavel.mechanism.cluster import nodes
from gavel.mechanism.jobs.index import JobIndex, is_schedulable
from gavel.ports import AuditEntry, Instruction, JobEvent, Snapshot
from gavel.types import (
    ApplicationResource,
    Cluster,
    DiskState,
    InfeasibleType,
    Job,
    JobId,
    JobSpec,
    NodeStatus,
    Observation,
    Operation,
    OperationState,
    Prediction,
    Reason,
    RoundPlan,
    RoundRecord,
    StartupTimes,
)
from gavel.types.autopilot import AutopilotSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a handler of a command (commands/table.py) decided. `jobs` and `nodes` replace those of the same name.

    `is_pending`: not done yet, ask again at the next tick. `before` and `after` are for the audit log; without `after`
    the command is not kept there.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    is_pending: bool = False
    jobs: tuple[Job, ...] = ()
    events: tuple[JobEvent, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    resources: tuple[ApplicationResource, ...] | None = None  # replaces all
    instructions: tuple[Instruction, ...] = ()
    policy: str | None = None  # in force from the next round on
    infeasible: tuple[InfeasibleType, ...] | None = None  # replaces all
    autopilot: AutopilotSetting | None = None  # in force at once
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Tick:
    """The state that later steps of a tick see, and what its commit will write."""

    now_s: float
    seen: Observation
    snapshot: Snapshot
    jobs: dict[JobId, Job]
    nodes: dict[str, NodeStatus] = field(default_factory=dict)
    resources: tuple[ApplicationResource, ...] = ()
    changed: dict[JobId, Job] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    made: list[JobSpec] = field(default_factory=list)  # jobs that the scheduler adds: replicas of services
    operations: list[Operation] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    held: Mapping[JobId, tuple[Reason, str]] = field(default_factory=dict)  # why no round may serve them
    rounds_over: frozenset[int] = frozenset()  # stored rounds none of whose gangs can run any more
    disk: DiskState = field(default_factory=DiskState)
    wanting: list[Job] = field(default_factory=list)  # that a round may serve now, the next one first
    startup_times: tuple[StartupTimes, ...] = ()
    infeasible: tuple[InfeasibleType, ...] = ()
    switch_cost_s: list[tuple[str, float]] = field(default_factory=list)  # (kind, measured) of gangs that ended
    unreported: list[tuple[str, float]] = field(default_factory=list)  # (user, cluster seconds) of gangs that ended
    policy: str | None = None  # switched to in this tick
    autopilot: AutopilotSetting | None = None  # set in this tick
    amended: RoundPlan | None = None
    record: RoundRecord | None = None
    predictions: tuple[Prediction, ...] = ()  # of jobs that are in a round for the first time
    index: JobIndex = field(default_factory=JobIndex)  # of `jobs`
    _usable: Cluster | None = None

    def __post_init__(self) -> None:
        """Let `jobs` be those of the index."""
        if self.index.jobs is not self.jobs:
            self.index.take(self.jobs)
            self.jobs = self.index.jobs

    @classmethod
    def of(cls, now_s: float, seen: Observation, snapshot: Snapshot, index: JobIndex | None = None) -> Self:
        """Return the state of a tick that has decided nothing yet; `index` is that of the tick before."""
        index = index or JobIndex()
        index.take(snapshot.jobs)
        return cls(
            now_s=now_s,
            seen=seen,
            snapshot=snapshot,
            jobs=index.jobs,
            index=index,
            startup_times=snapshot.startup_times,
            infeasible=snapshot.infeasible,
        )

    @property
    def usable(self) -> Cluster:
        """The part of the cluster where new leases may be given; computed again only after a command for nodes."""
        if self._usable is None:
            self._usable = nodes.usable(self.seen.cluster, self.nodes)
        return self._usable

    def stalled(self) -> list[tuple[JobId, str]]:
        """Return the jobs that a round may serve but that are not expected to get on, each with why not."""
        mine = [job for job in self.index.conditional.values() if job.no_progress and job.id not in self.held]
        return [(job.id, job.no_progress) for job in mine if is_schedulable(job, self.now_s)]

    def put(self, job: Job, *events: JobEvent) -> None:
        """Replace a job; a job in a terminal state is taken out of `jobs`."""
        self.changed[job.id] = job
        self.events.extend(events)
        if job.state.is_terminal:
            self.index.remove(job.id)
        else:
            self.index.put(job)

    def take(self, command: Operation, outcome: Outcome) -> None:
        """Apply the outcome of a command: the jobs, nodes and so on that it replaces, and the state of the command."""
        for job in outcome.jobs:
            self.put(job)
        self.events.extend(outcome.events)
        self.nodes |= {node.name: node for node in outcome.nodes}
        self._usable = None
        self.instructions.extend(outcome.instructions)
        if outcome.resources is not None:
            self.resources = outcome.resources
        self.infeasible = self.infeasible if outcome.infeasible is None else outcome.infeasible
        self.policy = self.policy if outcome.policy is None else outcome.policy
        self.autopilot = self.autopilot if outcome.autopilot is None else outcome.autopilot
        if outcome.is_pending:
            if outcome.result != command.result:
                self.operations.append(replace(command, result=outcome.result))
            return
        done = replace(command, state=OperationState.DONE, result=outcome.result, finished_at_s=self.now_s)
        self.operations.append(done)
        if outcome.after is not None:
            self.audit.append(
                AuditEntry(
                    at_s=self.now_s,
                    by=command.by,
                    subject=command.subject,
                    before=outcome.before,
                    after={"command": command.kind, **outcome.after},
                )
            )

    @property
    def round_records(self) -> tuple[RoundRecord, ...]:
        """Return the newest rounds, oldest first, including one decided in this tick, each with its amended plan."""
        records = (*self.snapshot.round_records, self.record)[-2:] if self.record else self.snapshot.round_records
        return tuple(self._with_amendment(record) for record in records) if self.amended else records

    def _with_amendment(self, record: RoundRecord) -> RoundRecord:
        if self.amended is None or self.amended.round_index != record.plan.round_index:
            return record
        return replace(record, plan=self.amended)

    @property
    def round_plans(self) -> tuple[RoundPlan, ...]:
        """Return the plans of `round_records`."""
        return tuple(record.plan for record in self.round_records)
