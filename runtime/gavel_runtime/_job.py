"""One process's view of its job: its steps, its place in the gang, its tasks."""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from gavel_runtime._hub import GO, STOP, Hub, Meeting, Spoke, join_hub, open_hub
from gavel_runtime._leader import EXIT_PREEMPTED, Leader, Save
from gavel_runtime._reports import merged_metrics
from gavel_runtime._restore import resumed
from gavel_runtime._setting import Setting, setting_from
from gavel_runtime._tasks import Task, ask_for_task

if TYPE_CHECKING:  # loads HTTP, which most jobs never need
    from gavel_runtime._service import JobCluster, NodeSpec, Units

Restore = Callable[[Path], object]
CHECKPOINT_EVERY_S = 60.0
TTL_S = 60.0


class Job:
    """This process's view of its job; one per process, `job`."""

    def __init__(self) -> None:
        self._metrics: dict[str, float] = {}
        self._numbers = itertools.count(1)

    @cached_property
    def _setting(self) -> Setting:
        return setting_from(os.environ)

    @cached_property
    def _gang(self) -> Hub | Spoke:
        setting = self._setting
        if setting.task:
            raise RuntimeError(f"task {setting.task} is no rank: it does no steps and is in no all_gather")
        if setting.world_size == 1 or setting.gang_dir is None:
            return Hub()
        meeting = Meeting(setting.gang_dir, setting.hub, setting.gang_key, setting.gang_timeout_s)
        if setting.rank == 0:
            return open_hub(meeting, setting.world_size)
        return join_hub(meeting, setting.rank, setting.world_size)

    @property
    def rank(self) -> int:
        """This process's number in its gang, from 0."""
        return self._setting.rank

    @property
    def world_size(self) -> int:
        """Number of processes in the gang, the job's scale factor."""
        return self._setting.world_size

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the rank that writes checkpoints and reports."""
        return self.rank == 0

    @property
    def accelerator_type(self) -> str:
        """Name of the accelerator type that this process runs on; `standalone` outside Gavel."""
        return self._setting.accelerator_type

    @property
    def id(self) -> str:
        """The job's id, which owns the ephemeral resources it sets; empty outside Gavel."""
        return self._setting.job_id

    @property
    def node(self) -> str:
        """The node that this process runs on; empty outside Gavel."""
        return self._setting.node

    @property
    def output_dir(self) -> Path:
        """The job's folder for what it produces: it stays over leases, and is listed and downloaded.

        Outside Gavel `outputs`, made below the present folder. Raises RuntimeError where a cluster offers none.
        """
        folder = self._setting.output_dir
        if folder is None:
            raise RuntimeError("job.output_dir: this cluster has no output folders; write to a folder that you share")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def steps(
        self,
        *,
        checkpoint: Save | None = None,
        restore: Restore | None = None,
        total: int | None = None,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    ) -> Iterator[int]:
        """Yield the indices of the steps to do, from the first that no checkpoint covers to the last.

        `restore(path)` is called first, in every rank, when there is a checkpoint to resume from; if it raises and the
        job has one rank, again with the checkpoint before that one. `checkpoint(path)` is called in rank 0 between
        steps with an empty directory to fill: at the end, before the lease is over, and every `checkpoint_every_s`
        seconds. When the job must stop, SystemExit(75) is raised instead of the next step, so that code after the loop
        runs only when training is complete; every rank stops after the same step.
        `total` is the number of steps outside Gavel; inside, the number of the submitted job is used.
        Raises ValueError when there is no total, or a checkpoint but no `restore`; GangError when a rank is lost.
        """
        setting = self._setting
        total_steps = total if setting.total_steps is None else setting.total_steps
        if total_steps is None:
            raise ValueError("total: not run by Gavel, so say how many steps: job.steps(total=1000)")
        if setting.checkpoint is not None and restore is None:
            raise ValueError(f"restore: there is a checkpoint at {setting.checkpoint}; pass a function that loads it")
        return self._steps(total_steps, checkpoint, restore, checkpoint_every_s)

    def _steps(
        self, total_steps: int, save: Save | None, restore: Restore | None, checkpoint_every_s: float
    ) -> Iterator[int]:
        setting, gang = self._setting, self._gang
        with _StopSignal() as stop_signal:
            begun = resumed(setting, restore)
            if isinstance(gang, Spoke):
                yield from _follow(gang, begun.step, stop_signal)
                return
            leader = Leader(
                setting,
                gang,
                save=save,
                checkpoint_every_s=checkpoint_every_s,
                metrics=self._metrics,
                asked_to_stop=stop_signal,
                begun=begun,
            )
            yield from leader.steps(total_steps)

    def report(self, **metrics: float) -> None:
        """Attach metrics to the coming reports, such as `loss=0.3`: at most 16 names; numbers that are not finite are
        left out. Raises ValueError for too many names."""
        merged = merged_metrics(self._metrics, metrics)
        self._metrics.clear()
        self._metrics.update(merged)

    def all_gather(self, payload: bytes) -> tuple[bytes, ...]:
        """Return every rank's payload, in the order of ranks, once all ranks have called it. Raises GangError."""
        return self._gang.all_gather(payload)

    # --- tasks and their places ---

    def launch(
        self,
        argv: Sequence[str],
        *,
        requires: Mapping[str, int],
        name: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Task:
        """Request a program that starts on a node of this job once what it `requires` is free there, and holds it.

        `requires` is {name: units} of ephemeral resources, this job's or `owner/name`; they may be set before or after.
        The task ends with this gang's lease at the latest; its output is in the job's log. A name is used once in a
        gang: launched again, it is the same task. Raises ValueError, RuntimeError outside Gavel.
        """
        if self._setting.gang_dir is None:
            raise RuntimeError("job.launch: not run by Gavel, so nobody starts tasks; see docs/ephemeral-resources.md")
        place = self._setting.task or f"rank-{self.rank}"
        name = name or f"{place}-{next(self._numbers)}"
        return ask_for_task(self._setting.gang_dir, name, argv, requires, env or {})

    def set_resource(
        self,
        name: str,
        capacity: int,
        node: "NodeSpec | None" = None,
        *,
        ttl_s: float = TTL_S,
        num_nodes: int | None = None,
        expect_generation: int | None = None,
    ) -> dict[str, int]:
        """Create, resize, renew or (capacity 0) delete this job's `name`; return {node: generation} as written.

        `node` is one node, a list of nodes, or {owner/name: amount} for every node of this job with that much free; by
        default this process's node. At most `num_nodes` are written. The lease is `ttl_s` seconds, renewed by setting
        it again. Raises ServiceError, also if the generation is not `expect_generation` (0: there is no such name).
        """
        resource = {"name": name, "capacity": capacity, "nodes": node or self.node, "ttl_s": ttl_s}
        asked = {"num_nodes": num_nodes, "expect_generation": expect_generation}
        resource |= {key: value for key, value in asked.items() if value is not None}
        return {each["node"]: each["generation"] for each in self.cluster(ttl_s=ttl_s).set_all([resource])}

    def get_cluster_state(self) -> "dict[str, dict[str, Units]]":
        """Return {node: {owner/name: units with `capacity` and `free`}}, workers included. Raises ServiceError."""
        return self.cluster().get_cluster_state()

    def cluster(self, *, ttl_s: float = TTL_S) -> "JobCluster":
        """Return the cluster for the libraries of gavel.ephemeral in a job: `LoadBalancing(…).apply(job.cluster())`.

        Raises RuntimeError outside Gavel.
        """
        from gavel_runtime._service import JobCluster

        if not (self._setting.service_url and self._setting.job_token):
            raise RuntimeError("not run by a Gavel service, so there is no cluster to ask (GAVEL_URL, GAVEL_JOB_TOKEN)")
        return JobCluster(self._setting.service_url, self._setting.job_token, ttl_s)


def _follow(spoke: Spoke, start: int, stop_signal: "_StopSignal") -> Iterator[int]:
    """Yield each step that the hub orders: the loop of every rank but 0. Raises SystemExit(75) at a stop."""
    step = start
    while (order := spoke.order(step)) == GO:
        yield step
        step += 1
        spoke.step_done(asked_to_stop=stop_signal())
    if order == STOP:
        raise SystemExit(EXIT_PREEMPTED)


class _StopSignal:
    """A context manager that records SIGTERM; a call returns whether one came. Only works in the main thread.

    A process that leaves because its lease is over ignores the signal from then on: the supervisor sends it at the same
    instant, and it would kill the process in the middle of its exit, before its exit code and its own cleaning up.
    """

    def __init__(self) -> None:
        self._came = False
        self._is_main = threading.current_thread() is threading.main_thread()

    def __call__(self) -> bool:
        return self._came

    def __enter__(self) -> "_StopSignal":
        if self._is_main:
            self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_main:
            leaves = isinstance(error, SystemExit) and error.code == EXIT_PREEMPTED
            signal.signal(signal.SIGTERM, signal.SIG_IGN if leaves else self._before or signal.SIG_DFL)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._came = True


job = Job()
