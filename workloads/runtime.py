"""The library inside a job: which steps to do, when to checkpoint, how the ranks of a gang agree.

    from workloads.runtime import job

    for step in job.steps(checkpoint=save, restore=load):
        train(step)
    print("trained")          # reached only when the training is complete

Standard library only. It talks to the service through files (docs/gang-protocol.md), so a job runs on when the service
is down, and stops by itself when its lease is over. Outside Gavel the same script runs from 0 to `total`.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from workloads._hub import GO, STOP, GangError, Hub, Spoke, join_hub, open_hub
from workloads._leader import EXIT_PREEMPTED, Leader, Save
from workloads._lease import boottime_s
from workloads._reports import merged_metrics
from workloads._setting import Setting, setting_from

__all__ = ["GangError", "Job", "job"]

Restore = Callable[[Path], object]
CHECKPOINT_EVERY_S = 60.0


class Job:
    """This process's view of its job; one per process, `job`."""

    def __init__(self) -> None:
        self._metrics: dict[str, float] = {}

    @cached_property
    def _setting(self) -> Setting:
        return setting_from(os.environ)

    @cached_property
    def _gang(self) -> Hub | Spoke:
        setting = self._setting
        if setting.world_size == 1 or setting.gang_dir is None:
            return Hub()
        if setting.rank == 0:
            return open_hub(setting.gang_dir, setting.world_size, setting.gang_key, setting.gang_timeout_s)
        return join_hub(setting.gang_dir, setting.rank, setting.world_size, setting.gang_key, setting.gang_timeout_s)

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
        """True in the one rank that writes checkpoints and reports."""
        return self.rank == 0

    @property
    def accelerator_type(self) -> str:
        """Name of the accelerator type that this process runs on; `standalone` outside Gavel."""
        return self._setting.accelerator_type

    def steps(
        self,
        *,
        checkpoint: Save | None = None,
        restore: Restore | None = None,
        total: int | None = None,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    ) -> Iterator[int]:
        """The indices of the steps to do, from the first that no checkpoint covers to the last.

        `restore(path)` is called first, in every rank, when there is a checkpoint to go on from. `checkpoint(path)` is
        called in rank 0 between steps with an empty directory to fill: at the end, before the lease is over, and every
        `checkpoint_every_s` seconds. When the job must stop, SystemExit(75) is raised where the next step would have
        been, so that code after the loop runs only when training is complete; every rank stops after the same step.
        `total` is the number of steps outside Gavel; inside, the service's number holds.
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
            started_s = boottime_s()
            if setting.checkpoint is not None and restore is not None:
                restore(setting.checkpoint)
            if isinstance(gang, Spoke):
                yield from _follow(gang, setting.start_step, stop_signal)
                return
            leader = Leader(
                setting,
                gang,
                save=save,
                checkpoint_every_s=checkpoint_every_s,
                metrics=self._metrics,
                asked_to_stop=stop_signal,
                restore_s=boottime_s() - started_s,
            )
            yield from leader.steps(total_steps)

    def report(self, **metrics: float) -> None:
        """Attach metrics to the coming reports, such as `loss=0.3`: at most 16 names; numbers that are not finite are
        left out. Raises ValueError for too many names."""
        merged = merged_metrics(self._metrics, metrics)
        self._metrics.clear()
        self._metrics.update(merged)

    def all_gather(self, payload: bytes) -> tuple[bytes, ...]:
        """Every rank's payload in the order of ranks, once all of them have called it. Raises GangError."""
        return self._gang.all_gather(payload)


def _follow(spoke: Spoke, start: int, stop_signal: "_StopSignal") -> Iterator[int]:
    """The loop of every rank but 0: do what the hub orders."""
    step = start
    while (order := spoke.order(step)) == GO:
        yield step
        step += 1
        spoke.step_done(asked_to_stop=stop_signal())
    if order == STOP:
        raise SystemExit(EXIT_PREEMPTED)


class _StopSignal:
    """Remembers SIGTERM while it is entered; true once one came. Signals reach the main thread only."""

    def __init__(self) -> None:
        self._came = False
        self._is_main = threading.current_thread() is threading.main_thread()

    def __call__(self) -> bool:
        return self._came

    def __enter__(self) -> Self:
        if self._is_main:
            self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_main:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._came = True


job = Job()
