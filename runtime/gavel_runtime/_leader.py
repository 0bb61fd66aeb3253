"""Rank 0 of a gang: it holds the lease, releases each step, writes checkpoints and reports."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gavel_runtime._checkpoint import write_checkpoint
from gavel_runtime._hub import END, GO, STOP, Hub
from gavel_runtime._lease import Lease, LeaseFile, boottime_s
from gavel_runtime._reports import Meter, Reports
from gavel_runtime._restore import Resumed
from gavel_runtime._setting import Setting

EXIT_PREEMPTED = 75
PROGRESS_EVERY_S = 0.5
_HOLD_POLL_S = 0.02

Save = Callable[[Path], object]


class Leader:
    """The loop of rank 0. `metrics` is read at each report; `asked_to_stop()` is true once a signal came.

    `begun` says where it goes on; the seconds that loading took are the first estimate of how long writing takes. If
    the accepted checkpoint could not be loaded, the steps up to it are done again and not reported.
    """

    def __init__(
        self,
        setting: Setting,
        hub: Hub,
        *,
        save: Save | None,
        checkpoint_every_s: float,
        metrics: Mapping[str, float],
        asked_to_stop: Callable[[], bool],
        begun: Resumed,
    ) -> None:
        gang_dir = setting.gang_dir
        self._generation = setting.generation
        self._hub = hub
        self._directory = setting.checkpoint_dir
        self._save = save if setting.checkpoint_dir is not None else None
        self._checkpoint_every_s = checkpoint_every_s
        self._metrics = metrics
        self._asked_to_stop = asked_to_stop
        self._a_rank_stops = False
        self._lease = LeaseFile(gang_dir and gang_dir / "lease.json", Lease(setting.lease_expires_boottime_s))
        self._reports = Reports(gang_dir and gang_dir / "reports.jsonl")
        self._meter = Meter()
        self._checkpoint_s = begun.restore_s
        self._start, self._accepted, self._note = begun.step, setting.start_step, begun.note
        self._does_again = begun.step < setting.start_step
        self._saved = setting.start_step
        self._saved_at_s = self._reported_at_s = boottime_s()

    def steps(self, total: int) -> Iterator[int]:
        """Yield each step that the gang may do, until the last; raises SystemExit(75) at the end of the lease."""
        start = self._start
        if start < total:
            self._begin()
        self._meter.resume(boottime_s())
        try:
            for step in range(start, total):
                self._release(step)
                yield step
                self._step_done(step + 1)
            self._finish(max(start, total))
        finally:
            self._reports.close()

    def _begin(self) -> None:
        """Show the service that this program counts its steps, and which checkpoint it could not load."""
        self._reports.write("progress", self._accepted, steps=0, seconds=0.0, metrics=self._metrics, note=self._note)
        self._reported_at_s = boottime_s()

    def _release(self, step: int) -> None:
        """Wait until the gang may do `step`, and release it. Writes a checkpoint first if it must wait, or one is due.

        If the lease ends too early for the step and a checkpoint after it, the gang waits: it goes on if the lease is
        extended in time, and exits when the lease is over.
        """
        if boottime_s() - self._saved_at_s >= self._checkpoint_every_s:
            self._checkpoint(step)
        while not self._has_room_for(step):
            self._checkpoint(step)
            if self._is_over():
                self._leave(step)
            time.sleep(_HOLD_POLL_S)
            self._meter.resume(boottime_s())
        self._hub.release(GO, step)

    def _has_room_for(self, step: int) -> bool:
        """Return whether the lease lasts for the step and a checkpoint.

        The first step after a start always has room: so a job progresses even if its leases are shorter than a step.
        """
        saving = self._save is not None and step > self._start
        needed_s = self._meter.step_s + self._checkpoint_s if saving else 0.0
        return not self._stops() and self._lease.has_room_for(needed_s)

    def _stops(self) -> bool:
        return self._a_rank_stops or self._asked_to_stop()

    def _is_over(self) -> bool:
        return self._stops() or not self._lease.has_room_for(0.0)

    def _step_done(self, step: int) -> None:
        self._a_rank_stops |= self._hub.step_done()
        now_s = boottime_s()
        self._meter.step_done(now_s)
        if self._meter.steps and now_s - self._reported_at_s >= PROGRESS_EVERY_S:
            self._report("progress", step)

    def _leave(self, step: int) -> None:
        if self._meter.steps:
            self._report("progress", step)
        self._hub.release(STOP, step)
        raise SystemExit(EXIT_PREEMPTED)

    def _finish(self, step: int) -> None:
        self._checkpoint(step)
        self._report("finished", step, durable=True)
        self._hub.release(END, step)

    def _checkpoint(self, step: int) -> None:
        """Save and report the job's state after `step` steps, unless it is saved already or the job saves none."""
        if self._save is None or self._directory is None or step <= self._saved:
            return
        started_s = boottime_s()
        path = write_checkpoint(self._directory, f"{self._generation}-{step}", self._save)
        self._saved, self._saved_at_s = step, boottime_s()
        self._checkpoint_s = self._saved_at_s - started_s
        self._report("checkpoint", step, checkpoint=path.name, durable=True)
        self._meter.resume(boottime_s())

    def _report(self, kind: str, step: int, *, checkpoint: str | None = None, durable: bool = False) -> None:
        steps, seconds = self._meter.take()
        self._reported_at_s = boottime_s()
        if self._does_again:
            steps, seconds = 0, 0.0
            self._does_again = step < self._accepted
        if self._does_again:
            return
        self._reports.write(
            kind, step, steps=steps, seconds=seconds, metrics=self._metrics, checkpoint=checkpoint, durable=durable
        )
