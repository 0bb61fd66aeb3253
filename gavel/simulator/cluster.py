"""A cluster that exists in numbers only: gangs progress at given rates on a clock that the caller moves."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from zlib import crc32

from gavel.ephemeral import Gang, GangRequest, Member, ResourceTable, match
from gavel.errors import StaleVersion
from gavel.ports import (
    Clock,
    CordonNode,
    ExtendLease,
    ForgetGang,
    Instruction,
    LaunchGang,
    SaveCheckpoint,
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
    plain_type,
)
from workloads.traces.throughputs import PairThroughput

Throughput = Mapping[tuple[str, int, AcceleratorType], float]
"""Steps per second of a whole gang, by job kind, scale factor and accelerator type."""

STUCK = 1e-9  # steps per second of a gang that makes no progress on shared workers
UNSTATED_STEPS = 1000  # of a job whose length neither its user nor its command line says
HALVES = 2  # of a worker; a gang takes both, unless it shares its workers with another


def program(kind: str, total_steps: int | None = None) -> tuple[str, ...]:
    """Return the argv that a virtual cluster runs as a job of this kind; `total_steps` is what the program says."""
    return ("virtual", *([] if total_steps is None else [str(total_steps)]), kind)


class VirtualCluster:
    """Implements ClusterBackend on `clock`. Each rank requires its gang's resource and a worker, as on any backend.

    Steps/s by kind, scale factor and type: `throughput` on one node; `spread` over several nodes (None: the same);
    `colocated` on workers shared with another gang. A gang's argv must be `program(kind)`. Each start costs
    `switch_cost_s` of its kind (key `""`: all other kinds) before the first step. A gang lives `lease_grace_s` beyond
    its lease, so that an extension at the very instant of the lease's end still reaches it. It checkpoints when it is
    stopped, and every `checkpoint_period_s`. It reports its progress every `report_period_s`, 0: when it is observed,
    and with each checkpoint that it has `checkpoint_bytes`, if they are given.
    """

    def __init__(  # noqa: PLR0913  what a cluster is like
        self,
        cluster: Cluster,
        throughput: Throughput,
        clock: Clock,
        switch_cost_s: float | Mapping[str, float] = 0.0,
        lease_grace_s: float = 0.0,
        checkpoint_period_s: float = inf,
        spread: Throughput | None = None,
        colocated: PairThroughput | None = None,
        *,
        report_period_s: float = 0.0,
        checkpoint_bytes: int | None = None,
    ) -> None:
        self._report_period_s = report_period_s
        self._checkpoint_bytes = checkpoint_bytes
        self._whole = self._cluster = cluster
        self._checkpoint_period_s = checkpoint_period_s
        self._throughput = throughput
        self._clock = clock
        self._switch_cost_s = switch_cost_s if isinstance(switch_cost_s, Mapping) else {"": switch_cost_s}
        self._spread = spread or {}
        self._colocated = colocated or {}
        self._node_of = {worker.id: worker.node for worker in cluster.workers}
        self._physical: dict[str, dict[str, int]] = {node.name: {} for node in cluster.nodes}
        for worker in cluster.workers:
            self._physical[worker.node][f"worker-{worker.id}"] = HALVES
        self._lease_grace_s = lease_grace_s
        self._gangs: dict[Gang, VirtualGang] = {}
        self._end_due_s: float | None = None  # the next instant at which a gang ends by itself; None: to be computed
        self._fence: dict[JobId, int] = {}  # the lowest generation that may still start
        self.cordons: dict[str, bool] = {}  # of nodes; a cluster that has cordons is given them
        self.table = ResourceTable()
        for node in cluster.nodes:
            self._add_to_table(node.name)

    # --- the port ---

    def observe(self) -> Observation:
        """Return a consistent snapshot at the clock's instant. Running gangs report the steps done so far."""
        now_s = self._advance()
        for gang in self._gangs.values():
            if gang.state is GangState.RUNNING and now_s >= gang.report_due_s:
                gang.report_due_s = self._next_report_s(gang, now_s)
                gang.report_start(now_s)
                is_due = now_s - gang.checkpointed_at_s >= self._checkpoint_period_s
                gang.report(ReportKind.CHECKPOINT if is_due else ReportKind.PROGRESS, gang.step_at(now_s))
                gang.checkpointed_at_s = now_s if is_due else gang.checkpointed_at_s
        return Observation(
            observed_at_s=now_s,
            cluster=self._cluster,
            gangs=tuple(self._seen(gang, now_s) for gang in self._gangs.values()),
            resources=self.table.resources(now_s),
            held=self.table.held(),
            cordons=dict(self.cordons),
        )

    def _next_report_s(self, gang: VirtualGang, now_s: float) -> float:
        """When it reports next. The second report comes at a time of its own, so that not all gangs report at once."""
        if gang.report_due_s > -inf:
            return now_s + self._report_period_s
        return now_s + self._report_period_s * (crc32(gang.launched.job_id.encode()) % 1000) / 1000

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the instructions in order. An instruction for an older generation is ignored."""
        now_s = self._advance()
        for instruction in instructions:
            self._execute(instruction, now_s)
        self._end_due_s = None
        self._start_matching(now_s)

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Return no text: a virtual gang writes no log."""
        return b"", offset

    def close(self) -> None:
        """Do nothing: no resources are held outside this object."""

    def next_event_at_s(self) -> float:
        """Return the next instant at which there is something new to observe; +inf: never."""
        if any(gang.state is GangState.ENDED and not gang.is_end_seen for gang in self._gangs.values()):
            return self._clock.now_s()
        return self._next_end_s()

    # --- faults ---

    def lose_node(self, name: str) -> None:
        """Remove a node at once, with every gang that has a worker there.

        What they did since their checkpoints is lost.
        """
        now_s = self._advance()
        self._end_due_s = None
        lost = {worker.id for worker in self._whole.workers if worker.node == name}
        for gang in self._gangs.values():
            if gang.state is not GangState.ENDED and lost.intersection(gang.launched.worker_ids):
                self._end(gang, now_s, GangExit(outcome=GangOutcome.LOST, message=f"node {name} is gone"))
        self.table.remove_node(name)
        self.drain_node(name)

    def drain_node(self, name: str) -> None:
        """Offer the node's workers no more. Gangs there run until their leases end."""
        self._cluster = Cluster(
            nodes=tuple(node for node in self._cluster.nodes if node.name != name),
            workers=tuple(worker for worker in self._cluster.workers if worker.node != name),
        )

    def return_node(self, name: str) -> None:
        """Offer the node again, with all its workers."""
        there = {node.name for node in self._cluster.nodes} | {name}
        self._cluster = Cluster(
            nodes=tuple(node for node in self._whole.nodes if node.name in there),
            workers=tuple(worker for worker in self._whole.workers if worker.node in there),
        )
        self._add_to_table(name)

    def _add_to_table(self, name: str) -> None:
        self.table.add_node(name, self._physical[name])

    # --- time ---

    def _next_end_s(self) -> float:
        """Return the next instant at which a gang ends by itself; +inf: none will."""
        if self._end_due_s is None:
            self._end_due_s = min((gang.ends_at_s() for gang in self._gangs.values()), default=inf)
        return self._end_due_s

    def _advance(self) -> float:
        """Let all that is due happen in order of time; return the clock's instant."""
        now_s = self._clock.now_s()
        while (due_at_s := self._next_end_s()) <= now_s:
            for gang in self._gangs.values():
                if gang.ends_at_s() <= due_at_s:
                    self._end_by_itself(gang, due_at_s)
            self._end_due_s = None
            self._start_matching(due_at_s)
        self.table.expire(now_s)
        return now_s

    def _end_by_itself(self, gang: VirtualGang, at_s: float) -> None:
        if gang.state is GangState.RUNNING and gang.step_at(at_s) >= gang.total_steps:
            gang.report(ReportKind.FINISHED, gang.total_steps)
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
            self._end_due_s = None
            gang = self._gangs[matched.gang]
            gang.state, gang.started_at_s = GangState.RUNNING, now_s
            gang.startup_s = self._cost_s(gang.launched.argv[-1])
            gang.training_from_s = now_s + gang.startup_s
            gang.checkpointed_at_s = now_s
            gang.reported_step = gang.launched.start_step
            self._meet(gang, now_s)

    def _meet(self, gang: VirtualGang, at_s: float) -> None:
        """Set the rates of gangs that share workers: slower while they share, their own speed once they are alone."""
        if not self._colocated:
            return
        workers = gang.launched.worker_ids
        there = [each for each in self._gangs.values() if each.launched.worker_ids == workers]
        running = [each for each in there if each.state is GangState.RUNNING]
        for each, other in zip(running, reversed(running), strict=True):
            rate = each.alone_steps_per_s if each is other else self._packed_rate(each, other)
            if rate != each.rate_steps_per_s:
                each.go_on(at_s, rate)

    def _packed_rate(self, gang: VirtualGang, other: VirtualGang) -> float:
        launched = gang.launched
        kinds = launched.argv[-1], other.launched.argv[-1]
        return max(
            STUCK, self._colocated.get((*kinds, len(launched.worker_ids), plain_type(launched.accelerator_type)), 0.0)
        )

    # --- instructions ---

    def _execute(self, instruction: Instruction, now_s: float) -> None:
        match instruction:
            case SetResources(resources=resources):
                with suppress(StaleVersion):  # the table has a newer version of the resource
                    self.table.set_resources(resources, now_s=now_s)
            case LaunchGang():
                self._launch(instruction, now_s)
            case StopGang(job_id=job_id, generation=generation, reason=reason):
                self._raise_fence(job_id, generation + 1)
                for gang in self._alive(job_id, generation):
                    self._preempt(gang, now_s, reason)
            case ExtendLease():
                self._extend(instruction, now_s)
            case SaveCheckpoint():
                self._save(instruction, now_s)
            case ForgetGang(job_id=job_id, generation=generation):
                if not self._alive(job_id, generation):
                    self._gangs.pop((job_id, generation), None)
            case CordonNode(node=node, is_cordoned=is_cordoned):
                self.cordons[node] = is_cordoned
            # KeepCheckpoint, PrepareGang: a virtual checkpoint takes no space, and a virtual program loads nothing

    def _extend(self, lease: ExtendLease, now_s: float) -> None:
        for gang in self._alive(lease.job_id, lease.generation):
            gang.expires_at_s = max(gang.expires_at_s, lease.expires_at_s)  # never shortens
            if lease.shares_with is not None:
                self._make_room(gang, now_s)

    def _save(self, asked: SaveCheckpoint, now_s: float) -> None:
        for gang in self._alive(asked.job_id, asked.generation):
            gang.save(now_s, asked.asked_at_s)

    def _alive(self, job_id: JobId, generation: int) -> list[VirtualGang]:
        """Return the gang in a list; an empty list if it has ended or never existed."""
        gang = self._gangs.get((job_id, generation))
        return [gang] if gang and gang.state is not GangState.ENDED else []

    def _launch(self, launch: LaunchGang, now_s: float) -> None:
        if launch.generation < self._fence.get(launch.job_id, 0):
            return
        self._raise_fence(launch.job_id, launch.generation + 1)
        kind = launch.argv[-1]
        rate = self._rate(launch)
        request = _request(launch, HALVES if launch.shares_with is None else 1)
        gang = VirtualGang(
            launched=launch,
            request=request,
            total_steps=_steps_of(launch),
            alone_steps_per_s=rate,
            rate_steps_per_s=rate,
            base_steps=launch.start_step,
            expires_at_s=launch.lease_expires_at_s,
            grace_s=self._lease_grace_s,
            checkpoint_bytes=self._checkpoint_bytes,
        )
        self._gangs[gang.key] = gang
        if rate <= 0:
            gang.end(now_s, self._unable(kind, len(launch.worker_ids), launch.accelerator_type))

    def _unable(self, kind: str, workers: int, name: AcceleratorType) -> GangExit:
        """Return the end of a gang without a throughput: its program does not fit there if it has one elsewhere."""
        what = f"kind {kind} on {workers} {name}"
        elsewhere = {plain_type(worker.accelerator_type) for worker in self._whole.workers}
        if any(self._throughput.get((kind, workers, each), 0.0) > 0 for each in elsewhere):
            message = f"CannotRunHere: {what} has no throughput, and has one on other types"
            return GangExit(outcome=GangOutcome.EXITED, exit_code=1, log_tail=message, message=message)
        return GangExit(outcome=GangOutcome.NOT_STARTED, message=f"no throughput is known of {what}")

    def _make_room(self, gang: VirtualGang, now_s: float) -> None:
        """Let the gang keep half of each worker.

        Its request is matched again at once, so that nobody else gets that half.
        """
        gang.request = _request(gang.launched, 1)
        if self.table.holds(gang.key):
            self.table.release(gang.key)
            match(self.table, [gang.request], now_s)

    def _rate(self, launch: LaunchGang) -> float:
        key = (launch.argv[-1], len(launch.worker_ids), plain_type(launch.accelerator_type))
        is_spread = len({self._node_of.get(worker) for worker in launch.worker_ids}) > 1
        return (self._spread.get(key, 0.0) if is_spread else 0.0) or self._throughput.get(key, 0.0)

    def _cost_s(self, kind: str) -> float:
        return self._switch_cost_s.get(kind, self._switch_cost_s.get("", 0.0))

    def _raise_fence(self, job_id: JobId, generation: int) -> None:
        self._fence[job_id] = max(self._fence.get(job_id, 0), generation)

    # --- reading ---

    def _seen(self, gang: VirtualGang, now_s: float) -> GangSeen:
        """Return the gang as it is observed: the very object of before for one that runs on and reports nothing."""
        before = gang.seen
        if before is None or before.reports or gang.reports or not before.state is gang.state is GangState.RUNNING:
            gang.seen = self._looked_at(gang, now_s)
            return gang.seen
        return before

    def _looked_at(self, gang: VirtualGang, now_s: float) -> GangSeen:
        reports, gang.reports = tuple(gang.reports), []
        gang.is_end_seen = gang.state is GangState.ENDED
        is_waiting = gang.state is GangState.WAITING
        return GangSeen(
            job_id=gang.launched.job_id,
            generation=gang.launched.generation,
            state=gang.state,
            accelerator_type=gang.launched.accelerator_type,
            worker_ids=gang.launched.worker_ids,
            started_at_s=gang.started_at_s,
            ended_at_s=gang.ended_at_s,
            exit=gang.exit,
            reports=reports,
            waiting_for=self.table.missing(gang.request, now_s) if is_waiting else "",
        )


def _steps_of(launch: LaunchGang) -> int:
    """Return the length of the gang's job: as launched, else what its program says, as of `program`."""
    if launch.total_steps is not None:
        return launch.total_steps
    stated = launch.argv[1] if len(launch.argv) > 1 else ""
    return int(stated) if stated.isdigit() else UNSTATED_STEPS


def _request(launch: LaunchGang, halves: int) -> GangRequest:
    """Return the request of a gang: each rank requires the gang's resource and its worker, or half of the worker."""
    members = tuple(Member({launch.resource: 1, f"node/worker-{each}": halves}) for each in launch.worker_ids)
    return GangRequest((launch.job_id, launch.generation), members)
