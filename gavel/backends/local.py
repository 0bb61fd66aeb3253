"""This machine as a cluster of one node or several: one supervisor process per gang, which outlives the service.

The matcher of `gavel.ephemeral` decides when a gang starts: each of its tasks requires one unit of the gang's ephemeral
resource and one of its worker's physical resource, and waits for both. So one gang takes over from another by itself.
Tasks that a gang launches beside its ranks are matched alike. Nodes are virtual where workers name several.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.accelerators import LocalAccelerator, node_name
from gavel.backends.folder import StateFolder
from gavel.backends.folder_backend import REPORTS_KEPT, FolderBackend, answering
from gavel.backends.gang import GangKey, LocalGang
from gavel.backends.gpu_health import GpuHealth, usable, without_workers
from gavel.backends.isolation import adopted_gangs, isolated
from gavel.backends.launch import PREPARATION, Places, Preparation, base_environment, launch_json
from gavel.backends.meeting import LOOPBACK
from gavel.backends.requests import gang_request, hold_again
from gavel.backends.sandbox import missing_sandbox
from gavel.backends.sharing import CoreSharing
from gavel.backends.tasks import GangTasks
from gavel.backends.unix_users import uid_of
from gavel.backends.warm_starts import WarmStarts
from gavel.backends.watch import Watch
from gavel.ephemeral.matcher import Match, match
from gavel.ephemeral.names import WORKER_UNITS
from gavel.ephemeral.resources import GangRequest, ResourceTable
from gavel.errors import BackendUnavailable, Conflict, LimitReached, NotFound, StaleVersion
from gavel.ports import (
    Clock,
    ExtendLease,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    PrepareGang,
    StopGang,
)
from gavel.types import (
    Cluster,
    EphemeralResource,
    GangOutcome,
    GangSeen,
    GangState,
    JobId,
    Node,
    Observation,
    Report,
    Term,
)


class LocalBackend(FolderBackend):
    """Runs gangs as processes of this machine. One service at a time per `state_dir`; not thread-safe but `read_log`.

    A service with a newer `term` of the same database takes over from one that is only asleep, whose acts then fail.

    `lease_grace_s`: from the end of a lease to the kill of what still runs. `on_change` is called, from another thread,
    when a gang has ended. A job whose output folder grows beyond `output_bytes_per_job` (0: any size) is ended.
    A program is started before its lease, where that was asked for, if `warm_memory_bytes` are free for each rank.
    `environment` is added to every process of every job; `preparation` says how what jobs bring is made ready. Workers
    that name several nodes make
    virtual ones: they share this machine and one supervisor a gang, but each has its own names. `kept` is the folder of
    what outlives gangs, where this is one of several backends. Raises BackendUnavailable when another service uses
    `state_dir`.
    """

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        state_dir: Path,
        accelerators: Sequence[LocalAccelerator],
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        output_bytes_per_job: int = 0,
        warm_memory_bytes: int = 1 << 30,
        on_change: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
        term: Term | None = None,
        preparation: Preparation = PREPARATION,
        kept: Path | None = None,
    ) -> None:
        self._clock = clock
        self._lease_grace_s = lease_grace_s
        self._log_bytes_per_job = log_bytes_per_job
        self._output_bytes_per_job = output_bytes_per_job
        self._preparation = preparation
        self._missing_sandbox = missing_sandbox(preparation.isolation)
        self._base = {**base_environment(), **(environment or {})}
        self._accelerators = {each.worker.id: each for each in accelerators}
        self._cluster = _cluster([*self._accelerators.values()])
        self._health = GpuHealth(accelerators)
        self._node_of = {worker.id: worker.node for worker in self._cluster.workers}
        self._table = ResourceTable()
        for node in self._cluster.nodes:
            self._table.add_node(
                node.name, {f"worker-{each}": WORKER_UNITS for each, at in self._node_of.items() if at == node.name}
            )
        self._sharing = CoreSharing([*self._accelerators.values()])
        self._gangs: dict[GangKey, LocalGang] = {}
        self._reports: dict[GangKey, deque[Report]] = {}
        self._tasks: dict[GangKey, GangTasks] = {}  # of running gangs
        with answering("open"), StateFolder.opened(state_dir, term, kept) as self._folder:
            self._warm = WarmStarts(self._folder.own(self._folder.warm), warm_memory_bytes)
            self._watch = Watch(on_change)
            self._adopt()

    # --- the port -----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return one consistent view, after starting what can start. Raises BackendUnavailable.

        The newest reports of a gang that ended are returned again until it is forgotten, so that none is lost with a
        commit that failed; their sequence numbers tell which are new.
        """
        with answering("observe"):
            self._folder.check_held()
            now_s = self._clock.now_s()
            for gang in self._gangs.values():
                self._look(gang)
            self._table.expire(now_s)
            self._start_matched(now_s)
            self._warm.look()
            self._sharing.look((worker, gang.key) for gang in self._running() for worker in gang.instruction.worker_ids)
            self._sharing.mark_loaded(worker for gang in self._warm.waiting() for worker in gang.worker_ids)
            return Observation(
                observed_at_s=now_s,
                cluster=without_workers(usable(self._cluster, self._health.problems()), self._missing_sandbox),
                gangs=tuple(self._seen(gang, now_s) for gang in self._gangs.values()),
                resources=self._table.resources(now_s),
                held=self._table.held(),
            )

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the instructions in order, then start what can start; does not wait for processes.

        Stale instructions are ignored. Raises BackendUnavailable (sending all of them again does no harm),
        InvalidRequest.
        """
        with answering("execute"):
            self._folder.check_held()
            for instruction in instructions:
                self._obey_alone(instruction)
            self._start_matched(self._clock.now_s())

    def close(self) -> None:
        """Release the state directory; gangs run on to the end of their leases. Closing twice does no harm."""
        self._watch.close()
        self._warm.close()
        self._folder.close()

    # --- instructions -------------------------------------------------------------------------------------------

    def _set_resources(self, resources: tuple[EphemeralResource, ...]) -> None:
        now_s = self._clock.now_s()
        try:
            self._table.set_resources(resources, now_s=now_s)
        except StaleVersion:
            return  # a newer generation is set
        self._folder.keep_resources(self._table.resources(now_s))

    def _launch(self, instruction: LaunchGang) -> None:
        places = self._folder.places(instruction.job_id, instruction.generation)
        self._request(instruction)  # raises if it could never be matched
        if instruction.generation < self._folder.fence(instruction.job_id):
            return
        lease_boottime_s = self._boottime_s(instruction.lease_expires_at_s)
        gang = LocalGang(
            instruction,
            self._folder.own(places.gang),
            places.checkpoints,
            lease_boottime_s,
            lease_grace_s=self._lease_grace_s,
        )
        with isolated(gang, self._folder):
            if not self._warm.has(gang.key):
                gang.forget()  # what an earlier gang of the job has put there
            gang.remember()
        self._know(gang)

    def _extend(self, instruction: ExtendLease) -> None:
        gang = self._gangs.get((instruction.job_id, instruction.generation))
        if gang is not None:
            with isolated(gang, self._folder):
                gang.extend(self._boottime_s(instruction.expires_at_s))
                if instruction.shares_with is not None and gang.instruction.shares_with is None:
                    self._make_room(gang, instruction.shares_with)

    def _make_room(self, gang: LocalGang, other: JobId) -> None:
        """Reduce what the gang holds to half of each worker; nobody can take that half away meanwhile."""
        gang.instruction = replace(gang.instruction, shares_with=other)
        gang.remember()
        if self._table.holds(gang.key):
            self._table.release(gang.key)
            self._hold_again(gang, self._clock.now_s())

    def _stop(self, instruction: StopGang) -> None:
        self._raise_fence(instruction.job_id, instruction.generation + 1)
        gang = self._gangs.get((instruction.job_id, instruction.generation))
        if gang is not None:
            with isolated(gang, self._folder):
                gang.stop(instruction.reason)

    def _save(self, key: GangKey, asked_at_s: float) -> None:
        if key in self._gangs:
            with isolated(self._gangs[key], self._folder):
                self._gangs[key].save(asked_at_s)

    def _forget(self, key: GangKey) -> None:
        gang = self._gangs.get(key)
        if gang is None or gang.state is not GangState.ENDED:
            return
        self._raise_fence(key[0], key[1] + 1)
        gang.forget()
        del self._gangs[key], self._reports[key]
        self._sharing.take(key)

    def _keep_checkpoint(self, instruction: KeepCheckpoint) -> None:
        self._folder.keep_checkpoint(instruction.job_id, instruction.checkpoint)

    # --- gangs --------------------------------------------------------------------------------------------------

    def _look(self, gang: LocalGang) -> None:
        with isolated(gang, self._folder):
            self._look_at(gang)

    def _look_at(self, gang: LocalGang) -> None:
        is_over = machine.boottime_s() >= gang.lease_boottime_s
        if gang.state is GangState.WAITING and is_over:
            gang.end(GangOutcome.PREEMPTED, "its lease ended while it waited")
        gang.look()
        if gang.state is GangState.RUNNING:
            for hold in self._tasks_of(gang).look():
                self._table.release(hold)
        elif gang.state is GangState.ENDED:
            self._table.release(gang.key)
            for hold, _, _ in self._tasks.pop(gang.key).holds() if gang.key in self._tasks else ():
                self._table.release(hold)

    def _start_matched(self, now_s: float) -> None:
        waiting = [gang.instruction for gang in self._gangs.values() if gang.state is GangState.WAITING]
        for matched in match(self._table, [self._request(each) for each in waiting], now_s):
            self._start(self._gangs[matched.gang])
        for key, tasks in self._tasks.items():
            with isolated(self._gangs[key], self._folder):
                for task_match in match(self._table, tasks.requests(), now_s):
                    self._start_task(self._gangs[key], tasks, task_match)
                tasks.explain(lambda request: self._table.missing(request, now_s))

    def _tasks_of(self, gang: LocalGang) -> GangTasks:
        if gang.key not in self._tasks:
            nodes = [self._node_of[worker] for worker in gang.instruction.worker_ids if worker in self._node_of]
            self._tasks[gang.key] = GangTasks(gang.directory, *gang.key, nodes)
        return self._tasks[gang.key]

    def _start_task(self, gang: LocalGang, tasks: GangTasks, matched: Match) -> None:
        try:
            tasks.start(matched.gang, matched.nodes[0], machine.read_json(str(gang.directory / "launch.json")))
        except OSError:  # the disk is full: it waits, and is matched again at the next look
            self._table.release(matched.gang)

    def _start(self, gang: LocalGang) -> None:
        places = self._folder.places(*gang.key)
        warm = self._warm.take(gang.instruction)
        try:
            launch = self._launch_json(gang.instruction, places, gang.lease_boottime_s)
            places.make(uid_of(launch))
            pid = gang.start_warm(launch, warm.begin) if warm else None
            pid = gang.start(launch, self._base) if pid is None else pid
        except (NotFound, LimitReached) as problem:
            gang.end(GangOutcome.NOT_STARTED, str(problem))
            self._table.release(gang.key)
        except (OSError, BackendUnavailable) as problem:  # this machine's fault, not the job's: it may try again
            gang.lose(f"cannot start its supervisor: {problem}")
            self._table.release(gang.key)
        else:
            self._watch.add(pid)

    def _launch_json(self, instruction: LaunchGang, places: Places, lease_boottime_s: float) -> dict[str, Any]:
        return launch_json(
            instruction,
            places,
            self._accelerators,
            base=self._base,
            lease_expires_boottime_s=lease_boottime_s,
            lease_grace_s=self._lease_grace_s,
            log_bytes=self._log_bytes_per_job,
            output_bytes=self._output_bytes_per_job,
            preparation=self._preparation,
        )

    def _prepare(self, instruction: PrepareGang) -> None:
        """Start the gang's programs early if there is memory; where that fails they start with their lease."""
        gang = instruction.gang
        key, places = (gang.job_id, gang.generation), self._folder.places(gang.job_id, gang.generation)
        is_known = key in self._gangs or gang.generation < self._folder.fence(gang.job_id)
        if is_known or not self._accelerators.keys() >= set(gang.worker_ids) or not self._warm.can_prepare(gang):
            return
        with suppress(NotFound, LimitReached, OSError):
            launch = self._launch_json(gang, places, self._boottime_s(gang.lease_expires_at_s))
            places.make(uid_of(launch))
            self._warm.prepare(gang, places.gang, launch, self._base, self._boottime_s(instruction.until_s))

    def _running(self) -> Iterator[LocalGang]:
        return (gang for gang in self._gangs.values() if gang.state is GangState.RUNNING)

    def _seen(self, gang: LocalGang, now_s: float) -> GangSeen:
        reports, has_all = self._read_reports(gang)
        is_ended = gang.state is GangState.ENDED and has_all
        state = GangState.RUNNING if gang.state is GangState.ENDED and not has_all else gang.state
        is_waiting = gang.state is GangState.WAITING
        return GangSeen(
            job_id=gang.instruction.job_id,
            generation=gang.instruction.generation,
            state=state,
            accelerator_type=gang.instruction.accelerator_type,
            worker_ids=gang.instruction.worker_ids,
            started_at_s=self._instant_s(gang.started_boottime_s),
            ended_at_s=self._instant_s(gang.ended_boottime_s) if is_ended else None,
            exit=gang.exit if is_ended else None,
            reports=reports,
            waiting_for=self._table.missing(self._request(gang.instruction), now_s) if is_waiting else "",
            endpoint=gang.endpoint(LOOPBACK),
            load=gang.load(),
        )

    def _read_reports(self, gang: LocalGang) -> tuple[tuple[Report, ...], bool]:
        """Return new reports (for an ended gang also its newest old ones), and whether more can be read."""
        fresh: tuple[Report, ...] = ()
        has_ended = gang.state is GangState.ENDED
        with isolated(gang, self._folder):
            fresh = gang.reports.read()
        return self._handed(gang.key, self._reports[gang.key], fresh, has_ended=has_ended), not gang.reports.has_more

    # --- restart ------------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Load what an earlier service left: fences, resources and gangs, oldest first."""
        now_s = self._clock.now_s()
        here = {node.name for node in self._cluster.nodes}
        self._table.set_resources([each for each in self._folder.resources() if each.node in here], now_s=now_s)
        for gang in adopted_gangs(self._folder, lease_grace_s=self._lease_grace_s):
            self._know(gang)
            with isolated(gang, self._folder):
                self._take_up(gang, now_s)

    def _know(self, gang: LocalGang) -> None:
        job_id, generation = gang.key
        self._gangs[gang.key] = gang
        self._reports[gang.key] = deque(maxlen=REPORTS_KEPT)
        self._folder.assume_fence(job_id, generation + 1)

    def _take_up(self, gang: LocalGang, now_s: float) -> None:
        """Mark the workers and the ephemeral resource of a running gang as held."""
        gang.look()
        if gang.state is not GangState.RUNNING:
            return
        self._sharing.mark_disturbed(gang.key, gang.instruction.worker_ids)
        self._hold_again(gang, now_s)
        tasks = self._tasks_of(gang)
        tasks.look()
        for hold, node, needs in tasks.holds():
            with suppress(Conflict):  # a name that it held has expired
                self._table.acquire(hold, [(node, needs)], now_s)
        pid = gang.supervisor_pid()
        if pid is not None:
            self._watch.add(pid)

    def _hold_again(self, gang: LocalGang, now_s: float) -> None:
        hold_again(self._table, gang.key, self._request(gang.instruction).members, now_s)

    def _request(self, instruction: LaunchGang) -> GangRequest:
        return gang_request(instruction, self._node_of.get)


def _cluster(accelerators: Sequence[LocalAccelerator]) -> Cluster:
    """Return this machine as a cluster; a virtual node is as large as its workers' cores."""
    names = sorted({each.worker.node for each in accelerators}) or [node_name()]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def cores(name: str) -> int:
        if len(names) == 1:
            return len(os.sched_getaffinity(0))
        return len({cpu for each in accelerators if each.worker.node == name for cpu in each.cpus})

    nodes = (Node(name=name, cpu_cores=cores(name), memory_bytes=memory_bytes // len(names)) for name in names)
    return Cluster(nodes=tuple(nodes), workers=tuple(each.worker for each in accelerators))
