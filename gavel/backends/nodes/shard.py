"""One node's part of a gang: the local backend's supervisor and directory, with ranks counted over all nodes."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.gang import START_LIMIT_S, SUPERVISE, GangKey, LocalGang, spawn
from gavel.backends.gang_files import NOT_STARTED, job_files
from gavel.backends.health import REPLICA_ADDRESS
from gavel.backends.launch import Places, Preparation, launch_json
from gavel.backends.logs import read_log
from gavel.backends.meeting import LOOPBACK, place_of_rank
from gavel.backends.nodes.checkpoint_fetch import fetch_of
from gavel.backends.nodes.code_fetch import CodeFetches, CodeRefused
from gavel.backends.nodes.devices import environment_of
from gavel.backends.nodes.output_sync import OutputSync
from gavel.backends.nodes.protocol import ShardLaunch, ShardSeen, ShardWanted, Slot, launch_of
from gavel.backends.nodes.transfers import Transfers, is_url, store
from gavel.backends.reports import ReportReader
from gavel.backends.utilization import read_new_samples
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, Report, ReportKind, Worker, plain_type

LOG_BYTES_PER_ANSWER = 1 << 16
REPORTS_PER_ANSWER = 256
DETACHED = '"$@" &'
NO_TASKS = "a job on a cluster of nodes cannot launch tasks beside its ranks; give it more of them (scale_factor)"


class DetachedGang(LocalGang):
    """A gang whose supervisor is not a child of this process: what started its agent may kill those."""

    def start(self, launch: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        """Start the supervisor through a shell that ends at once. Raises OSError, after which nothing runs."""
        self._write_launch(launch)
        shell = ("/bin/sh", "-c", DETACHED, "sh", *SUPERVISE, str(self.directory))
        pid = spawn(shell, environment, self.directory / "supervisor.err")
        os.waitpid(pid, 0)
        self._announced_until_boottime_s = machine.boottime_s() + START_LIMIT_S
        self.state = GangState.RUNNING
        return pid


class Shard:
    """One gang's part on this node, from its launch until it is forgotten."""

    def __init__(
        self, launch: ShardLaunch, places: Places, gang: LocalGang, transfers: Transfers, code: CodeFetches
    ) -> None:
        self.launch = launch
        self.gang = gang
        self.secrets: Mapping[str, str] = {}
        self.lacks_code = ""  # the version that it waits for
        self._transfers = transfers
        self._code = code
        self._lost_checkpoints: list[str] = []
        self._lost_outputs = ""
        self._places = places
        self._outputs = _sync_of(launch, places, transfers)
        self._fetch = fetch_of(launch, places, transfers)
        self._log = places.gang / "output.log"
        self._tasks = machine.Lines(str(job_files(places.gang) / "tasks.jsonl"))
        self._kept: list[Report] = []
        self._dropped = 0  # sequence of the newest report that was taken and dropped

    @classmethod
    def make(
        cls, launch: ShardLaunch, own: Places, lease_boottime_s: float, transfers: Transfers, code: CodeFetches
    ) -> "Shard":
        """Return a new shard, stored so that a restarted agent adopts it. Raises OSError."""
        places, grace_s = shared_places(launch, own), launch.lease_grace_s
        gang = DetachedGang(
            launch.instruction, places.gang, places.checkpoints, lease_boottime_s, lease_grace_s=grace_s
        )
        gang.forget()  # what an earlier gang of the job has put there
        gang.remember()
        machine.write_json(str(places.gang / "shard.json"), asdict(launch))
        return cls(launch, places, gang, transfers, code)

    @classmethod
    def adopt(cls, own: Places, transfers: Transfers, code: CodeFetches, *, has_processes: bool) -> "Shard | None":
        """Return the shard that an earlier agent left in the gang's directory; None if its file is not complete.

        Raises OSError, and any of the errors of a value that is not what an agent has written.
        """
        record = machine.read_object(own.gang / "shard.json")
        if record is None:
            return None
        launch = launch_of(record)
        places = shared_places(launch, own)
        gang = DetachedGang.adopt(
            places.gang, places.checkpoints, lease_grace_s=launch.lease_grace_s, has_processes=has_processes
        )
        if gang is not None and gang.state is GangState.WAITING:
            gang.lose("its node's agent died while starting it")
        return None if gang is None else cls(launch, places, gang, transfers, code)

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.launch.key

    @property
    def is_live(self) -> bool:
        """Return True while it holds its slots."""
        return self.gang.state is not GangState.ENDED

    def start(self, base: Mapping[str, str], node: str) -> None:
        """Start the supervisor once code and checkpoint are here; end the gang if they cannot be. Called until it runs.

        What the node is to blame for loses the gang, so that the job may start elsewhere.
        """
        self.lacks_code = ""
        if self.gang.state is not GangState.WAITING:
            return
        if machine.boottime_s() >= self.gang.lease_boottime_s:
            self.gang.end(GangOutcome.PREEMPTED, "its lease ended while its code or its files were fetched")
            return
        try:
            if self._has_code() and self._has_checkpoint() and self._has_outputs():
                self._places.make(self.launch.uid)
                self.gang.start(self._launch_json(base, node), base)
                self.secrets = {}
        except CodeRefused as problem:
            self.gang.end(GangOutcome.NOT_STARTED, str(problem))
        except OSError as problem:
            self.gang.lose(f"cannot start on node {node}: {problem}")

    def _has_code(self) -> bool:
        """Return True once the job's code is on this node. Raises CodeRefused, OSError."""
        code = self.launch.instruction.code
        if not code or self._places.copy.is_dir() or self._code.is_here(code):
            return True
        self.lacks_code = code
        return False

    def go(self) -> None:
        """Let the ranks start: every node of the gang is ready."""
        path = self._places.gang / machine.GO
        if self.launch.awaits_nodes and self.is_live and not path.exists():
            machine.write_json(str(path), {})

    def _has_checkpoint(self) -> bool:
        """Return True once the checkpoint is on this node; lose the gang if it cannot be fetched."""
        if self._fetch is None:
            return True
        try:
            return self._fetch.is_here()
        except Exception as problem:  # of whichever storage this is
            name, url = self.launch.instruction.checkpoint, self.launch.checkpoints
            self.gang.lose(f"cannot fetch its checkpoint {name} from {url}: {problem}")
        return False

    def _has_outputs(self) -> bool:
        """Return True once what the job has written so far is on this node; lose the gang if it cannot be fetched."""
        if self._outputs is None:
            return True
        try:
            return self._outputs.is_here()
        except Exception as problem:  # of whichever storage this is
            self.gang.lose(f"cannot fetch its output files from {self.launch.outputs}: {problem}")
        return False

    def _keeps_outputs(self) -> bool:
        """Store what the job has written; return False while the gang is over and its files are not stored yet."""
        if self._outputs is None or self._lost_outputs or self.gang.state is GangState.WAITING:
            return True
        if self.is_live:
            self._outputs.look()
            return True
        try:
            return self._outputs.is_stored()
        except Exception as problem:  # of whichever storage this is
            self._lost_outputs = f"its output files could not be stored at {self.launch.outputs}: {problem}"
        return True

    def seen(self, wanted: ShardWanted | None) -> ShardSeen:
        """Return the state, and what came after what the service has taken already. Raises for spoilt files."""
        self.gang.look()
        self._refuse_tasks()
        if self._fetch is not None and self.is_live:
            self._fetch.look()
        keeps_outputs = self._keeps_outputs()
        offset = wanted.log_offset if wanted else 0
        log, next_offset, has_more_log = self._output(offset)
        samples, samples_offset = read_new_samples(self._log, wanted.samples_offset if wanted else 0)
        reports, has_more_reports = self._reports(wanted.reports_after if wanted else 0)
        return replace(
            self.state(wanted),
            is_ready=self.launch.awaits_nodes and (self._places.gang / machine.READY).exists(),
            endpoint=self.gang.endpoint(self.launch.environment.get(REPLICA_ADDRESS, LOOPBACK)),
            load=self.gang.load(),
            reports=reports,
            log=log,
            log_offset=next_offset,
            samples=samples,
            samples_offset=samples_offset,
            has_more=has_more_log or has_more_reports or not keeps_outputs,
        )

    def state(self, wanted: ShardWanted | None) -> ShardSeen:
        """Return the state without anything that is read from its files now."""
        return ShardSeen(
            key=self.key,
            state=self.gang.state,
            lease_node_boottime_s=self.gang.lease_boottime_s,
            started_node_boottime_s=self.gang.started_boottime_s,
            ended_node_boottime_s=self.gang.ended_boottime_s,
            exit=self._exit(),
            log_offset=wanted.log_offset if wanted else 0,
            samples_offset=wanted.samples_offset if wanted else 0,
            launch=None if wanted else self.launch,
        )

    def _refuse_tasks(self) -> None:
        """Write that requested tasks cannot start: only the local backend starts tasks in addition to ranks."""
        for line in self._tasks.read():
            end = {"task": str(line.get("task")), "exit_code": NOT_STARTED, "message": NO_TASKS}
            with suppress(OSError):  # the disk is full
                machine.append_json(str(self._places.gang / "ends.jsonl"), end)

    def _output(self, offset: int) -> tuple[bytes, int, bool]:
        """Return output from `offset` (whole lines if nodes share a log), the offset after it, and if there is more."""
        text, end = read_log(self._log, offset, LOG_BYTES_PER_ANSWER)
        is_full = len(text) >= LOG_BYTES_PER_ANSWER
        if self.is_live and not is_full and len(self.launch.instruction.worker_ids) > 1:
            cut = text.rfind(b"\n") + 1
            text, end = text[:cut], end - (len(text) - cut)
        return text, end, is_full

    def _reports(self, after: int) -> tuple[tuple[Report, ...], bool]:
        if 0 not in self.launch.ranks:
            return (), False
        if after < self._dropped:  # a new service asks for reports that its predecessor took
            self._kept, self._dropped = [], 0
            mask = self.gang.reports.mask
            self.gang.reports = _reader(self.launch.instruction, self._places)
            self.gang.reports.mask = mask
        self._kept.extend(self.gang.reports.read())
        self._kept = [report for report in self._kept if report.sequence > after]
        self._dropped = max(self._dropped, after)
        given = self._stored(self._kept[:REPORTS_PER_ANSWER])
        return tuple(given), self.gang.reports.has_more or len(given) < len(self._kept)

    def _stored(self, reports: list[Report]) -> list[Report]:
        """Return the reports before the first whose checkpoint is not stored yet; a failed one is only progress."""
        given = []
        for report in reports:
            try:
                if report.checkpoint is not None and not self._is_stored(report.checkpoint):
                    break
            except Exception as problem:  # of whichever storage this is
                self._lost_checkpoints.append(f"checkpoint {report.checkpoint} could not be stored: {problem}")
                report = replace(report, kind=ReportKind.PROGRESS, checkpoint=None)  # noqa: PLW2901
            given.append(report)
        return given

    def _is_stored(self, checkpoint: str) -> bool:
        job_id, url = self.launch.key[0], self.launch.checkpoints
        path = self._places.checkpoints / checkpoint
        return not is_url(url) or self._transfers.done((*self.key, checkpoint), lambda: store(url, job_id, path))

    def _exit(self) -> GangExit | None:
        """Return how it ended, with a note on what could not be stored.

        A gang that ended well and whose files are lost did not do its work: it counts as lost, and the job goes on.
        """
        lost = [*self._lost_checkpoints[-1:], *filter(None, (self._lost_outputs,))]
        if self.gang.exit is None or not lost:
            return self.gang.exit
        message = "; ".join(filter(None, (self.gang.exit.message, *lost)))
        is_undone = self._lost_outputs and self.gang.exit.outcome is GangOutcome.EXITED and not self.gang.exit.exit_code
        outcome = GangOutcome.LOST if is_undone else self.gang.exit.outcome
        return replace(self.gang.exit, outcome=outcome, message=message)

    def forget(self) -> None:
        """Delete everything of it here."""
        self.gang.forget()
        self._transfers.forget(lambda name: isinstance(name, tuple) and name[:2] == self.key)
        if is_url(self.launch.checkpoints):
            shutil.rmtree(self._places.checkpoints, ignore_errors=True)

    def _launch_json(self, base: Mapping[str, str], node: str) -> dict[str, Any]:
        """Return launch.json with the ranks of this node only, each with its number among all ranks."""
        launch = self.launch
        whole = launch_json(
            launch.instruction,
            self._places,
            self._accelerators(node),
            base=base,
            lease_expires_boottime_s=self.gang.lease_boottime_s,
            lease_grace_s=launch.lease_grace_s,
            log_bytes=launch.log_bytes,
            output_bytes=launch.output_bytes,
            preparation=self._preparation(),
        )
        previous = self._fetch.previous() if self._fetch is not None else None
        fetched = {"GAVEL_PREVIOUS_CHECKPOINT": str(previous)} if previous is not None else {}
        nodes = list(dict.fromkeys(launch.node_of_rank))
        for local, rank in enumerate(launch.ranks):
            spec = whole["ranks"][rank]
            spec["rank"] = rank
            spec["env"] |= {
                **launch.environment,
                **fetched,
                **place_of_rank(
                    rank,
                    len(launch.node_of_rank),
                    local_rank=local,
                    local_world_size=len(launch.ranks),
                    node_rank=nodes.index(launch.node_of_rank[rank]),
                ),
            }
        return {
            **whole,
            "ranks": [whole["ranks"][rank] for rank in launch.ranks],
            "reserve_port": False,
            "awaits_nodes": launch.awaits_nodes,
            "image": whole["image"] and {**whole["image"], "node": node},
            "world_size": len(launch.node_of_rank),
            "log_path": str(self._log),
        }

    def _preparation(self) -> Preparation:
        """Return how what the job brings is made ready on this node."""
        return Preparation(
            setup_limit_s=self.launch.setup_limit_s,
            data_hosts=self.launch.data_hosts,
            data_limit_s=self.launch.data_limit_s,
            data_cache_bytes=self.launch.data_cache_bytes,
            image_command=self.launch.image_command,
            image_options=self.launch.image_options,
            isolation=self.launch.isolation,
            shown_folders=self.launch.shown_folders,
            job_folders=lambda _: self.launch.job_folders,
            uid_of=lambda _: self.launch.uid,
            secrets_of=lambda _, names: {name: self.secrets[name] for name in names},
        )

    def _accelerators(self, node: str) -> dict[str, LocalAccelerator]:
        """Return this node's accelerators; of other nodes only what launch.json needs."""
        launch = self.launch
        slots = dict(zip(launch.ranks, launch.slots, strict=True))
        return {
            worker: _accelerator(worker, launch.node_of_rank[rank], launch.instruction, slots.get(rank))
            for rank, worker in enumerate(launch.instruction.worker_ids)
        }


def shared_places(launch: ShardLaunch, own: Places) -> Places:
    """Return this node's own paths, with checkpoints and outputs in the folders that all nodes share, if there are.

    Without a place for outputs there is no output folder: the service does not see the disks of the nodes.
    """
    if not is_url(launch.outputs):
        own = replace(own, outputs=Path(launch.outputs) / launch.instruction.job_id if launch.outputs else None)
    if is_url(launch.checkpoints):
        return own
    checkpoints = Path(launch.checkpoints) / launch.instruction.job_id
    return replace(own, checkpoints=checkpoints)


def _sync_of(launch: ShardLaunch, places: Places, transfers: Transfers) -> OutputSync | None:
    """Return what keeps the job's output folder at its URL; None if all nodes share it, or there is none."""
    if places.outputs is None or not is_url(launch.outputs):
        return None
    return OutputSync(launch.key, url=launch.outputs, outputs=places.outputs, gang=places.gang, transfers=transfers)


def _accelerator(worker: str, node: str, instruction: LaunchGang, slot: Slot | None) -> LocalAccelerator:
    seen = Worker(id=worker, node=node, accelerator_type=plain_type(instruction.accelerator_type))
    return LocalAccelerator(worker=seen, cpus=slot.cpus if slot else (), env=environment_of(slot) if slot else {})


def _reader(instruction: LaunchGang, places: Places) -> ReportReader:
    return ReportReader(
        job_files(places.gang) / "reports.jsonl",
        generation=instruction.generation,
        start_step=instruction.start_step,
        total_steps=instruction.total_steps,
        checkpoints=places.checkpoints,
    )
