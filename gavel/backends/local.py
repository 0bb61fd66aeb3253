"""This machine as a cluster: one supervisor process per gang, which outlives the service and is found again.

The matcher of `gavel.ephemeral` decides when a gang starts: each of its tasks requires one unit of the gang's ephemeral
resource and one of its worker's physical resource, and waits for both. So one gang takes over from another by itself.
"""

import fcntl
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from gavel.backends import supervisor
from gavel.backends.accelerators import LocalAccelerator, node_name
from gavel.backends.gang import GangKey, LocalGang, read_object
from gavel.backends.launch import Places, base_environment, launch_json
from gavel.backends.logs import read_log
from gavel.backends.sharing import CoreSharing
from gavel.backends.watch import Watch
from gavel.ephemeral.matcher import match
from gavel.ephemeral.resources import GangRequest, Member, ResourceTable
from gavel.errors import BackendUnavailable, Conflict, InvalidRequest, StaleVersion
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
)

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CHECKPOINT = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
REPORTS_KEPT = 64


class LocalBackend:
    """Runs gangs as processes of this machine. One service at a time per `state_dir`; not thread-safe but `read_log`.

    `lease_grace_s`: from the end of a lease to the kill of what still runs. `on_change` is called, from another thread,
    when a gang has ended. `environment` is added to every process of every job. Raises BackendUnavailable when another
    service uses `state_dir`, InvalidRequest for workers of more than one node.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        accelerators: Sequence[LocalAccelerator],
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        on_change: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._state_dir = state_dir.resolve()
        self._clock = clock
        self._lease_grace_s = lease_grace_s
        self._log_bytes_per_job = log_bytes_per_job
        self._base = {**base_environment(), **(environment or {})}
        self._accelerators = {each.worker.id: each for each in accelerators}
        self._cluster = _cluster([*self._accelerators.values()])
        self._node = self._cluster.nodes[0].name
        self._table = ResourceTable()
        self._table.add_node(self._node, {f"worker-{worker_id}": 1 for worker_id in self._accelerators})
        self._sharing = CoreSharing([*self._accelerators.values()])
        self._gangs: dict[GangKey, LocalGang] = {}
        self._reports: dict[GangKey, deque[Report]] = {}
        self._fences: dict[JobId, int] = {}  # tokens below are refused
        with _answering("open"):
            self._lock = _lock(self._state_dir)
            self._watch = Watch(on_change)
            self._adopt()

    # --- the port -----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """One consistent view; what waits and can start has started. Raises BackendUnavailable.

        The newest reports of a gang that ended are handed over again until it is forgotten, so that none is lost with
        a commit that failed; their sequence tells which are new.
        """
        with _answering("observe"):
            now_s = self._clock.now_s()
            for gang in self._gangs.values():
                self._look(gang)
            self._table.expire(now_s)
            self._start_matched(now_s)
            self._sharing.look({worker: gang.key for gang in self._running() for worker in gang.instruction.worker_ids})
            return Observation(
                observed_at_s=now_s,
                cluster=self._cluster,
                gangs=tuple(self._seen(gang, now_s) for gang in self._gangs.values()),
                resources=self._table.resources(now_s),
            )

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Obey in order, then start what can start; returns without waiting for processes.

        Stale instructions are ignored. Raises BackendUnavailable (telling it all again does no harm), InvalidRequest.
        """
        with _answering("execute"):
            for instruction in instructions:
                self._obey(instruction)
            self._start_matched(self._clock.now_s())

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Output of the job's ranks from `offset` (bytes since its first line), and the offset to ask for next.

        Begins later where the bound of the log has removed older output. Safe from any thread. Raises InvalidRequest.
        """
        if offset < 0:
            raise InvalidRequest("offset", f"{offset} is below 0; ask for 0 or an offset from an earlier answer")
        with _answering("read the log"):
            return read_log(self._places(job_id, 0).log, offset, limit_bytes)

    def close(self) -> None:
        """Let go of the state directory; gangs go on to the end of their leases. Closing twice does no harm."""
        self._watch.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- instructions -------------------------------------------------------------------------------------------

    def _obey(self, instruction: Instruction) -> None:
        match instruction:
            case SetResources():
                self._set_resources(instruction.resources)
            case LaunchGang():
                self._launch(instruction)
            case ExtendLease():
                self._extend(instruction)
            case StopGang():
                self._stop(instruction)
            case ForgetGang():
                self._forget((instruction.job_id, instruction.token))
            case KeepCheckpoint():
                self._keep_checkpoint(instruction)

    def _set_resources(self, resources: tuple[EphemeralResource, ...]) -> None:
        now_s = self._clock.now_s()
        try:
            self._table.set_resources(resources, now_s=now_s)
        except StaleVersion:
            return  # a newer word is known
        said = [asdict(resource) for resource in self._table.resources(now_s)]
        supervisor.write_json(str(self._state_dir / "resources.json"), {"resources": said})

    def _launch(self, instruction: LaunchGang) -> None:
        places = self._places(instruction.job_id, instruction.token)
        _request(instruction, self._node)  # raises if it could never be matched
        if instruction.token < self._fences.get(instruction.job_id, 0):
            return
        lease_boottime_s = self._boottime_s(instruction.lease_expires_at_s)
        gang = LocalGang(instruction, places.gang, places.checkpoints, lease_boottime_s)
        gang.remember()
        self._know(gang)

    def _extend(self, instruction: ExtendLease) -> None:
        gang = self._gangs.get((instruction.job_id, instruction.token))
        if gang is not None:
            gang.extend(self._boottime_s(instruction.expires_at_s))

    def _stop(self, instruction: StopGang) -> None:
        self._raise_fence(instruction.job_id, instruction.token + 1)
        gang = self._gangs.get((instruction.job_id, instruction.token))
        if gang is not None:
            gang.stop(instruction.reason)

    def _forget(self, key: GangKey) -> None:
        gang = self._gangs.get(key)
        if gang is None or gang.state is not GangState.ENDED:
            return
        self._raise_fence(key[0], key[1] + 1)
        gang.forget()
        del self._gangs[key], self._reports[key]
        self._sharing.take(key)

    def _keep_checkpoint(self, instruction: KeepCheckpoint) -> None:
        kept = _token_and_step(instruction.checkpoint)
        if kept is None:
            raise InvalidRequest("checkpoint", f"{instruction.checkpoint!r} is not TOKEN-STEP")
        folder = self._places(instruction.job_id, 0).checkpoints
        for path in folder.iterdir() if folder.is_dir() else ():
            found = _token_and_step(path.name)
            if found is not None and found < kept:
                shutil.rmtree(path, ignore_errors=True)  # what cannot go now goes with the next checkpoint

    def _raise_fence(self, job_id: JobId, fence: int) -> None:
        """From now on tokens below are refused, after a restart too."""
        path = self._places(job_id, 0).gang.with_name("fence.json")
        known = read_object(path)
        if known is None or known["fence"] < fence:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            supervisor.write_json(str(path), {"fence": fence})
        self._fences[job_id] = max(fence, self._fences.get(job_id, 0))

    # --- gangs --------------------------------------------------------------------------------------------------

    def _look(self, gang: LocalGang) -> None:
        is_over = supervisor.boottime_s() >= gang.lease_boottime_s
        if gang.state is GangState.WAITING and is_over:
            gang.end(GangOutcome.PREEMPTED, "its lease ended while it waited")
        gang.look()
        if gang.state is GangState.ENDED:
            self._table.release(gang.key)

    def _start_matched(self, now_s: float) -> None:
        waiting = [gang.instruction for gang in self._gangs.values() if gang.state is GangState.WAITING]
        for matched in match(self._table, [_request(each, self._node) for each in waiting], now_s):
            self._start(self._gangs[matched.gang])

    def _start(self, gang: LocalGang) -> None:
        places = self._places(*gang.key)
        try:
            places.make()
            launch = launch_json(
                gang.instruction,
                places,
                self._accelerators,
                base=self._base,
                lease_expires_boottime_s=gang.lease_boottime_s,
                lease_grace_s=self._lease_grace_s,
                log_bytes=self._log_bytes_per_job,
            )
            self._watch.add(gang.start(launch, self._base))
        except OSError as problem:  # this machine's fault, not the job's: it may try again
            gang.lose(f"cannot start its supervisor: {problem}")
            self._table.release(gang.key)

    def _running(self) -> Iterator[LocalGang]:
        return (gang for gang in self._gangs.values() if gang.state is GangState.RUNNING)

    def _seen(self, gang: LocalGang, now_s: float) -> GangSeen:
        reports, has_all = self._read_reports(gang)
        is_ended = gang.state is GangState.ENDED and has_all
        state = GangState.RUNNING if gang.state is GangState.ENDED and not has_all else gang.state
        is_waiting = gang.state is GangState.WAITING
        return GangSeen(
            job_id=gang.instruction.job_id,
            token=gang.instruction.token,
            state=state,
            accelerator_type=gang.instruction.accelerator_type,
            worker_ids=gang.instruction.worker_ids,
            started_at_s=self._instant_s(gang.started_boottime_s),
            ended_at_s=self._instant_s(gang.ended_boottime_s) if is_ended else None,
            exit=gang.exit if is_ended else None,
            reports=reports,
            waiting_for=self._table.missing(_request(gang.instruction, self._node), now_s) if is_waiting else "",
        )

    def _read_reports(self, gang: LocalGang) -> tuple[tuple[Report, ...], bool]:
        """New reports (those of a gang that ended: the newest known too), and whether there are no more to read."""
        kept = self._reports[gang.key]
        fresh = gang.reports.read()
        if fresh and not self._sharing.take(gang.key):
            fresh = tuple(replace(report, is_representative=False) for report in fresh)
        handed = (*kept, *fresh) if gang.state is GangState.ENDED else fresh
        kept.extend(fresh)
        return handed, not gang.reports.has_more

    # --- restart ------------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Find what an earlier service left: fences, resources and gangs, in the order in which they came."""
        now_s = self._clock.now_s()
        said = read_object(self._state_dir / "resources.json") or {"resources": []}
        resources = [EphemeralResource(**fields) for fields in said["resources"]]
        self._table.set_resources([each for each in resources if each.node == self._node], now_s=now_s)
        for path in (self._state_dir / "gangs").glob("*/fence.json"):
            self._fences[path.parent.name] = (read_object(path) or {"fence": 0})["fence"]
        for path in sorted((self._state_dir / "gangs").glob("*/*/gang.json"), key=lambda path: path.stat().st_mtime):
            gang = LocalGang.adopt(path.parent, self._state_dir / "checkpoints" / path.parent.parent.name)
            if gang is not None:
                self._know(gang)
                self._take_up(gang, now_s)

    def _know(self, gang: LocalGang) -> None:
        job_id, token = gang.key
        self._gangs[gang.key] = gang
        self._reports[gang.key] = deque(maxlen=REPORTS_KEPT)
        self._fences[job_id] = max(token + 1, self._fences.get(job_id, 0))

    def _take_up(self, gang: LocalGang, now_s: float) -> None:
        """What runs holds its workers again, and what is left of its ephemeral resource."""
        gang.look()
        if gang.state is not GangState.RUNNING:
            return
        self._sharing.doubt(gang.key, gang.instruction.worker_ids)
        members = _request(gang.instruction, self._node).members
        workers = [{name: 1 for name in member.requires if name.startswith("node/")} for member in members]
        for requires in ([member.requires for member in members], workers):
            try:
                self._table.acquire(gang.key, [(self._node, each) for each in requires], now_s)
                break
            except Conflict:
                continue  # its resource has expired, or a worker is no longer configured
        pid = gang.supervisor_pid()
        if pid is not None:
            self._watch.add(pid)

    # --- places and instants ------------------------------------------------------------------------------------

    def _places(self, job_id: JobId, token: int) -> Places:
        if not JOB_ID.fullmatch(job_id):
            raise InvalidRequest("job_id", f"{job_id!r} must be 1 to 63 of a-z, 0-9 and '-'")
        places = Places(
            gang=self._state_dir / "gangs" / job_id / str(token),
            work=self._state_dir / "work" / job_id,
            checkpoints=self._state_dir / "checkpoints" / job_id,
            log=self._state_dir / "logs" / f"{job_id}.log",
        )
        assert places.gang.resolve().is_relative_to(self._state_dir), "a job's files lie below the state directory"
        return places

    def _boottime_s(self, at_s: float) -> float:
        return supervisor.boottime_s() + at_s - self._clock.now_s()

    def _instant_s(self, boottime_s: float | None) -> float | None:
        return None if boottime_s is None else self._clock.now_s() - supervisor.boottime_s() + boottime_s


def _request(instruction: LaunchGang, node: str) -> GangRequest:
    members = (
        Member(requires={instruction.resource: 1, f"node/worker-{worker_id}": 1}, node=node)
        for worker_id in instruction.worker_ids
    )
    return GangRequest(gang=(instruction.job_id, instruction.token), members=tuple(members))


def _cluster(accelerators: Sequence[LocalAccelerator]) -> Cluster:
    names = {each.worker.node for each in accelerators} or {node_name()}
    if len(names) != 1:
        raise InvalidRequest("accelerators", f"workers of one node, not of {', '.join(sorted(names))}")
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    node = Node(name=names.pop(), cpu_cores=len(os.sched_getaffinity(0)), memory_bytes=memory_bytes)
    return Cluster(nodes=(node,), workers=tuple(each.worker for each in accelerators))


def _token_and_step(checkpoint: str) -> tuple[int, int] | None:
    found = CHECKPOINT.fullmatch(checkpoint)
    return (int(found[1]), int(found[2])) if found else None


def _lock(state_dir: Path) -> int:
    """A descriptor that keeps every other service out of the directory; its holder's death frees it."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(state_dir / "backend.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(lock)
        raise BackendUnavailable(
            f"another service uses {state_dir}: stop it, or give this one its own state_dir"
        ) from problem
    return lock


@contextmanager
def _answering(doing: str) -> Iterator[None]:
    """A disk that is full or gone is an answer, not a crash."""
    try:
        yield
    except OSError as problem:
        raise BackendUnavailable(f"cannot {doing}: {problem}") from problem
