"""A cluster that exists in numbers only: gangs progress at known rates on a clock that somebody else moves."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf

from gavel.ephemeral import Gang, GangRequest, Member, ResourceTable, match
from gavel.errors import StaleVersion
from gavel.ports import (
    Clock,
    ExtendLease,
    ForgetGang,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    SetResources,
    StopGang,
)
from gavel.simulator.gang import VirtualGang
from gavel.types import (
    AcceleratorType,
    Cluster,
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    JobId,
    Observation,
    ReportKind,
)
from workloads.traces.throughputs import PairThroughput

Throughput = Mapping[tuple[str, int, AcceleratorType], float]
"""Steps per second of a whole gang, by job kind, scale factor and accelerator type."""

STUCK = 1e-9  # steps per second of a gang that does not get on at all beside another
HALVES = 2  # of a worker; a gang takes both, unless it shares its workers with another


def program(kind: str) -> tuple[str, ...]:
    """The argv that a virtual cluster runs as a job of this kind."""
    return ("virtual", kind)


class VirtualCluster:
    """Implements ClusterBackend on `clock`. Each rank requires its gang's resource and its worker, like anywhere else.

    `throughput` says how fast each kind runs, `spread` how fast over several nodes (None: as on one), `beside` how fast
    on shared workers; a gang's argv must be `program(kind)`. Each start costs its kind's `switch_cost_s` (`""`: any
    other kind's) before the first step. A gang lives `lease_grace_s` beyond its lease, so that an extension at the very
    instant of its end still reaches it. It checkpoints when it is stopped, and every `checkpoint_period_s`.
    """

    def __init__(
        self,
        cluster: Cluster,
        throughput: Throughput,
        clock: Clock,
        switch_cost_s: float | Mapping[str, float] = 0.0,
        lease_grace_s: float = 0.0,
        checkpoint_period_s: float = inf,
        spread: Throughput | None = None,
        beside: PairThroughput | None = None,
    ) -> None:
        self._whole = self._cluster = cluster
        self._checkpoint_period_s = checkpoint_period_s
        self._throughput = throughput
        self._clock = clock
        self._switch_cost_s = switch_cost_s if isinstance(switch_cost_s, Mapping) else {"": switch_cost_s}
        self._spread = spread or {}
        self._beside = beside or {}
        self._node_of = {worker.id: worker.node for worker in cluster.workers}
        self._lease_grace_s = lease_grace_s
        self._gangs: dict[Gang, VirtualGang] = {}
        self._fence: dict[JobId, int] = {}  # the lowest token that may still start
        self.shared_s: defaultdict[tuple[JobId, AcceleratorType], float] = defaultdict(
            float
        )  # seconds on workers of another gang too
        self.table = ResourceTable()
        for node in cluster.nodes:
            self._add_to_table(node.name)

    # --- the port ---

    def observe(self) -> Observation:
        """One consistent view at the clock's instant; running gangs report the steps done so far."""
        now_s = self._advance()
        for gang in self._gangs.values():
            if gang.state is GangState.RUNNING:
                is_due = now_s - gang.checkpointed_at_s >= self._checkpoint_period_s
                gang.report(ReportKind.CHECKPOINT if is_due else ReportKind.PROGRESS, gang.step_at(now_s))
                gang.checkpointed_at_s = now_s if is_due else gang.checkpointed_at_s
        return Observation(
            observed_at_s=now_s,
            cluster=self._cluster,
            gangs=tuple(self._seen(gang, now_s) for gang in self._gangs.values()),
            resources=self.table.resources(now_s),
            held=self.table.held(),
        )

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry them out in order; a stale one is ignored."""
        now_s = self._advance()
        for instruction in instructions:
            self._execute(instruction, now_s)
        self._start_matching(now_s)

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Nothing: a virtual gang writes no log."""
        return b"", offset

    def close(self) -> None:
        """Nothing is held outside this object."""

    def next_event_at_s(self) -> float:
        """The next instant at which there is something new to observe; +inf: there will be nothing."""
        if any(gang.state is GangState.ENDED and not gang.is_end_seen for gang in self._gangs.values()):
            return self._clock.now_s()
        return self._next_end_s()

    # --- faults ---

    def lose_node(self, name: str) -> None:
        """The node is gone at once, with every gang that has a worker there; what they did not checkpoint is lost."""
        now_s = self._advance()
        lost = {worker.id for worker in self._whole.workers if worker.node == name}
        for gang in self._gangs.values():
            if gang.state is not GangState.ENDED and lost.intersection(gang.launched.worker_ids):
                self._end(gang, now_s, GangExit(outcome=GangOutcome.LOST, message=f"node {name} is gone"))
        self.table.remove_node(name)
        self.drain_node(name)

    def drain_node(self, name: str) -> None:
        """The node is offered no more; gangs there go on to the end of their leases."""
        self._cluster = Cluster(
            nodes=tuple(node for node in self._cluster.nodes if node.name != name),
            workers=tuple(worker for worker in self._cluster.workers if worker.node != name),
        )

    def return_node(self, name: str) -> None:
        """The node is back, and whole."""
        there = {node.name for node in self._cluster.nodes} | {name}
        self._cluster = Cluster(
            nodes=tuple(node for node in self._whole.nodes if node.name in there),
            workers=tuple(worker for worker in self._whole.workers if worker.node in there),
        )
        self._add_to_table(name)

    def _add_to_table(self, name: str) -> None:
        workers = {f"worker-{worker.id}": HALVES for worker in self._whole.workers if worker.node == name}
        self.table.add_node(name, workers)

    # --- time ---

    def _next_end_s(self) -> float:
        """The next instant at which a gang ends by itself; +inf: none will."""
        return min((gang.ends_at_s() for gang in self._gangs.values()), default=inf)

    def _advance(self) -> float:
        """Let everything happen that is due, in order of time; the clock's instant."""
        now_s = self._clock.now_s()
        while (due_at_s := self._next_end_s()) <= now_s:
            for gang in self._gangs.values():
                if gang.ends_at_s() <= due_at_s:
                    self._end_by_itself(gang, due_at_s)
            self._start_matching(due_at_s)
        self.table.expire(now_s)
        return now_s

    def _end_by_itself(self, gang: VirtualGang, at_s: float) -> None:
        if gang.state is GangState.RUNNING and gang.step_at(at_s) >= gang.launched.total_steps:
            gang.report(ReportKind.FINISHED, gang.launched.total_steps)
            self._end(gang, at_s, GangExit(outcome=GangOutcome.EXITED))
        else:
            self._preempt(gang, at_s, "its lease ended")

    def _preempt(self, gang: VirtualGang, at_s: float, why: str) -> None:
        if gang.state is GangState.RUNNING:
            gang.stop(at_s)
        self._end(gang, at_s, GangExit(outcome=GangOutcome.PREEMPTED, exit_code=75, message=why))

    def _end(self, gang: VirtualGang, at_s: float, how: GangExit) -> None:
        gang.end(at_s, how)
        self.table.release(gang.key)
        self._meet(gang, at_s)

    def _start_matching(self, now_s: float) -> None:
        waiting = [gang for gang in self._gangs.values() if gang.state is GangState.WAITING]
        for matched in match(self.table, [gang.request for gang in waiting if gang.expires_at_s > now_s], now_s):
            gang = self._gangs[matched.gang]
            gang.state, gang.started_at_s = GangState.RUNNING, now_s
            gang.training_from_s = now_s + self._cost_s(gang.launched.argv[-1])
            gang.checkpointed_at_s = now_s
            gang.reported_step = gang.launched.start_step
            self._meet(gang, now_s)

    def _meet(self, gang: VirtualGang, at_s: float) -> None:
        """Gangs on the same workers slow each other down; who is left alone there has its own speed again."""
        if not self._beside:
            return
        workers = gang.launched.worker_ids
        there = [each for each in self._gangs.values() if each.launched.worker_ids == workers]
        running = [each for each in there if each.state is GangState.RUNNING]
        for each in there:
            self._count_shared(each, at_s, is_shared=each in running and len(running) > 1)
        for each, other in zip(running, reversed(running), strict=True):
            rate = each.alone_steps_per_s if each is other else self._packed_rate(each, other)
            if rate != each.rate_steps_per_s:
                each.go_on(at_s, rate)

    def _count_shared(self, gang: VirtualGang, at_s: float, *, is_shared: bool) -> None:
        if is_shared and gang.shared_from_s is None:
            gang.shared_from_s = at_s
        elif not is_shared and gang.shared_from_s is not None:
            self.shared_s[gang.launched.job_id, gang.launched.accelerator_type] += at_s - gang.shared_from_s
            gang.shared_from_s = None

    def _packed_rate(self, gang: VirtualGang, other: VirtualGang) -> float:
        launched = gang.launched
        kinds = launched.argv[-1], other.launched.argv[-1]
        return max(STUCK, self._beside.get((*kinds, len(launched.worker_ids), launched.accelerator_type), 0.0))

    # --- instructions ---

    def _execute(self, instruction: Instruction, now_s: float) -> None:
        match instruction:
            case SetResources(resources=resources):
                with suppress(StaleVersion):  # a newer word is known
                    self.table.set_resources(resources, now_s=now_s)
            case LaunchGang():
                self._launch(instruction, now_s)
            case StopGang(job_id=job_id, token=token, reason=reason):
                self._raise_fence(job_id, token + 1)
                for gang in self._alive(job_id, token):
                    self._preempt(gang, now_s, reason)
            case ExtendLease():
                self._extend(instruction, now_s)
            case ForgetGang(job_id=job_id, token=token):
                if not self._alive(job_id, token):
                    self._gangs.pop((job_id, token), None)
            case KeepCheckpoint():
                pass  # a virtual checkpoint takes no space

    def _extend(self, lease: ExtendLease, now_s: float) -> None:
        for gang in self._alive(lease.job_id, lease.token):
            gang.expires_at_s = max(gang.expires_at_s, lease.expires_at_s)  # never shortens
            if lease.shares_with is not None:
                self._make_room(gang, now_s)

    def _alive(self, job_id: JobId, token: int) -> list[VirtualGang]:
        """The gang, unless it has ended or never was."""
        gang = self._gangs.get((job_id, token))
        return [gang] if gang and gang.state is not GangState.ENDED else []

    def _launch(self, launch: LaunchGang, now_s: float) -> None:
        if launch.token < self._fence.get(launch.job_id, 0):
            return
        self._raise_fence(launch.job_id, launch.token + 1)
        kind = launch.argv[-1]
        rate = self._rate(launch)
        request = _request(launch, HALVES if launch.shares_with is None else 1)
        gang = VirtualGang(
            launched=launch,
            request=request,
            alone_steps_per_s=rate,
            rate_steps_per_s=rate,
            base_steps=launch.start_step,
            expires_at_s=launch.lease_expires_at_s,
            grace_s=self._lease_grace_s,
        )
        self._gangs[gang.key] = gang
        if rate <= 0:
            message = f"no throughput is known of kind {kind} on {len(launch.worker_ids)} {launch.accelerator_type}"
            gang.end(now_s, GangExit(outcome=GangOutcome.NOT_STARTED, message=message))

    def _make_room(self, gang: VirtualGang, now_s: float) -> None:
        """The gang keeps half of each worker; nobody can take away what it holds meanwhile."""
        gang.request = _request(gang.launched, 1)
        if self.table.holds(gang.key):
            self.table.release(gang.key)
            match(self.table, [gang.request], now_s)

    def _rate(self, launch: LaunchGang) -> float:
        key = (launch.argv[-1], len(launch.worker_ids), launch.accelerator_type)
        is_spread = len({self._node_of.get(worker) for worker in launch.worker_ids}) > 1
        return (self._spread.get(key, 0.0) if is_spread else 0.0) or self._throughput.get(key, 0.0)

    def _cost_s(self, kind: str) -> float:
        return self._switch_cost_s.get(kind, self._switch_cost_s.get("", 0.0))

    def _raise_fence(self, job_id: JobId, token: int) -> None:
        self._fence[job_id] = max(self._fence.get(job_id, 0), token)

    # --- reading ---

    def _seen(self, gang: VirtualGang, now_s: float) -> GangSeen:
        reports, gang.reports = tuple(gang.reports), []
        gang.is_end_seen = gang.state is GangState.ENDED
        is_waiting = gang.state is GangState.WAITING
        return GangSeen(
            job_id=gang.launched.job_id,
            token=gang.launched.token,
            state=gang.state,
            accelerator_type=gang.launched.accelerator_type,
            worker_ids=gang.launched.worker_ids,
            started_at_s=gang.started_at_s,
            ended_at_s=gang.ended_at_s,
            exit=gang.exit,
            reports=reports,
            waiting_for=self.table.missing(gang.request, now_s) if is_waiting else "",
        )


def _request(launch: LaunchGang, halves: int) -> GangRequest:
    """Each rank requires its gang's resource and its worker, or half of it."""
    members = tuple(Member({launch.resource: 1, f"node/worker-{each}": halves}) for each in launch.worker_ids)
    return GangRequest((launch.job_id, launch.token), members)
