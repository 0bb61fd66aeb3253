"""Rank 0 of a gang: it holds the lease, releases each step, writes checkpoints and reports."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gavel_runtime._batches import Batches
from gavel_runtime._checkpoint import begin_checkpoint
from gavel_runtime._errors import NotSaved
from gavel_runtime._hub import END, GO, SAVE, STOP, Hub
from gavel_runtime._interval import FIRST_S, checkpoint_interval_s
from gavel_runtime._lease import Lease, LeaseFile, boottime_s
from gavel_runtime._marks import Marks
from gavel_runtime._reports import Measured, Meter, Reports
from gavel_runtime._restore import Resumed
from gavel_runtime._setting import Setting
from gavel_runtime._writing import Writing

EXIT_PREEMPTED = 75
_HOLD_POLL_S = 0.02
_TIME_TO_LOSS_MAX_S = 1e12  # that a report may say

Save = Callable[[Path], object]
"""Fills the folder; or returns a function that does so later, in a thread, from a copy made in memory."""


class Leader:
    """The side of rank 0 in its loop. `metrics` is read at each report; `asked_to_stop()` is true once a signal came.

    `begun` says where it goes on; the seconds that loading took are the first estimate of how long writing takes. If
    the accepted checkpoint could not be loaded, the steps up to it are done again and not reported.
    `can_save`: the loop can write checkpoints; `checkpoint_every_s`: seconds between them, None: as often as pays.
    `every_rank`: all ranks write their part of one. `total` None: steps without an end, which measure nothing.
    """

    def __init__(  # noqa: PLR0913  what its loop was told, each by its name
        self,
        setting: Setting,
        hub: Hub,
        total: int | None,
        *,
        begun: Resumed,
        every_rank: bool,
        can_save: bool,
        checkpoint_every_s: float | None,
        metrics: Mapping[str, float],
        marks: Marks,
        batches: Batches,
        asked_to_stop: Callable[[], bool],
    ) -> None:
        gang_dir = setting.gang_dir
        self._generation = setting.generation
        self._hub = hub
        self._directory = setting.checkpoint_dir if can_save else None
        self._every_rank = every_rank
        self._stated_every_s, self._time_to_loss_s = checkpoint_every_s, setting.time_to_loss_s
        self._stood_still_s: float | None = None  # for the last checkpoint; None before one was written
        self._metrics, self._marks, self._batches = metrics, marks, batches
        self._asked_to_stop = asked_to_stop
        self._a_rank_stops = False
        self._lease = LeaseFile(gang_dir and gang_dir / "lease.json", Lease(setting.lease_expires_boottime_s))
        self._save_taken_s = 0.0  # the last checkpoint that the service asked for and that was begun
        self._reports = Reports(gang_dir and gang_dir / "reports.jsonl")
        self._meter = Meter()
        self._checkpoint_s = begun.restore_s
        self.step = self._start = begun.step
        self._saved = begun.step
        self._stop_step, self._report_every_s = setting.stop_step, setting.report_every_s
        self._is_measured = total is not None
        self._end = sys.maxsize if total is None else max(self.step, total)
        self._unsaid_steps = self._end if self._is_measured and setting.total_steps is None else None
        self._saved_at_s = self._reported_at_s = boottime_s()
        self._is_report_left = False
        self._begun: Path | None = None
        self._writing: Writing | None = None
        if self.step < self._end:
            self._begin(begun)
        self._marks.take_step()  # what was before the first step
        self._meter.resume(boottime_s())

    def _begin(self, begun: Resumed) -> None:
        """Show the service that this program counts its steps, and how it began."""
        times_s = {"startup_s": round(begun.startup_s, 6), "restore_s": round(begun.restore_s, 6)}
        restored = begun.folder.name if begun.note and begun.folder else ""
        fallen_back = _filled(note=begun.note, restored=restored)
        self._write("progress", self._start, (0, 0.0, 0.0), more={**times_s, **fallen_back})

    def order(self) -> bytes:
        """Return GO when the gang may do the next step; SAVE if it must write a checkpoint first; END, STOP.

        If the lease ends too early for the step and a checkpoint after it, the gang saves and waits: it goes on if the
        lease is extended in time, and stops when the lease is over.
        """
        self._settle(wait=False)
        if self.step >= self._end:
            return self._begin_save() if self._is_unsaved() else self._leave(END)
        if self._is_unsaved() and self._is_due():
            return self._begin_save()
        while not self._has_room():
            if self._is_unsaved():
                return self._begin_save()
            if self._is_over():
                return self._leave(STOP)
            time.sleep(_HOLD_POLL_S)
            self._settle(wait=False)
            self._meter.resume(boottime_s())
        self._hub.release(GO, self.step, self._batches.order())
        return GO

    def _is_unsaved(self) -> bool:
        return self._directory is not None and self.step > self._saved

    def _is_due(self) -> bool:
        is_asked = self._lease.save_asked_s > self._save_taken_s
        return not self._writing and (is_asked or boottime_s() - self._saved_at_s >= self._every_s())

    def _every_s(self) -> float:
        """Return the seconds from one checkpoint to the next."""
        if self._stated_every_s is not None:
            return self._stated_every_s
        if self._stood_still_s is None:
            return FIRST_S
        return checkpoint_interval_s(self._stood_still_s, self._time_to_loss_s)

    def _has_room(self) -> bool:
        """Return whether the lease lasts for the step and a checkpoint.

        The first step after a start always has room: so a job progresses even if its leases are shorter than a step.
        """
        saving = self._directory is not None and self.step > self._start
        checkpoints_s = self._checkpoint_s * (2 if self._writing else 1)
        needed_s = self._meter.step_s + checkpoints_s if saving else 0.0
        return not self._stops() and self._lease.has_room_for(needed_s)

    def _stops(self) -> bool:
        return self._a_rank_stops or self._asked_to_stop() or self.step >= self._stop_step

    def _is_over(self) -> bool:
        return self._stops() or not self._lease.has_room_for(0.0)

    def step_done(self, *, logs_later: bool = False) -> None:
        """Count the step once every rank has done it, and report now and then.

        `logs_later`: the metrics of this step are still to come, so it is reported when the next step is done.
        """
        if self._is_report_left and not self._writing:
            self._report("progress", self.step)
        stops, outside_s = self._hub.step_done()
        self._a_rank_stops |= stops
        steps = self._batches.update_done()
        self.step = min(self._end, self.step + steps)
        own_s, work = self._marks.take_step()
        now_s = boottime_s()
        self._batches.took(self._meter.step_done(now_s, max(outside_s, own_s), work, steps))
        is_due = self._meter.steps > 0 and now_s - self._reported_at_s >= self._report_every_s
        if is_due and not logs_later and not self._writing:
            self._report("progress", self.step)
        self._is_report_left = is_due and logs_later

    def finish(self, *, saves: bool = True) -> None:
        """Make this step the last one; `saves`: with a checkpoint of it."""
        self._end = self.step
        if not saves:
            self._saved = self.step

    def close(self) -> None:
        """Close the reports."""
        self._reports.close()

    def _leave(self, order: bytes) -> bytes:
        self._settle(wait=True)
        if order == END:
            self._report("finished", self.step, durable=True)
        elif self._meter.steps:
            self._report("progress", self.step)
        self._hub.release(order, self.step)
        return order

    def _begin_save(self) -> bytes:
        """Make the checkpoint's folder, once the one before is written, and order every rank to fill it."""
        assert self._directory is not None
        self._settle(wait=True)
        self._save_taken_s = self._lease.save_asked_s
        self._begun = begin_checkpoint(self._directory, f"{self._generation}-{self.step}")
        if self._every_rank:
            self._hub.release(SAVE, self.step, self._begun.name)
        return SAVE

    def save(self, save: Save) -> None:
        """Write the checkpoint that SAVE asked for, and report it once it is on the disk: now, or by a later call."""
        assert self._begun is not None
        self._writing = Writing(self._begun, self.step, self._take())
        self._saved = self.step
        began_s = boottime_s()
        try:
            self._writing.begin(lambda folder: self._fill(folder, save))
        except NotSaved:
            self._writing, self._saved_at_s = None, boottime_s()
        self._stood_still_s = boottime_s() - began_s
        self._settle(wait=False)
        self._meter.resume(boottime_s())

    def _fill(self, folder: Path, save: Save) -> object:
        rest = save(folder)
        self._batches.save(folder)
        if self._every_rank:
            self._a_rank_stops |= self._hub.step_done()[0]
        return rest

    def _settle(self, *, wait: bool) -> None:
        """Report the checkpoint that was being written if it is on the disk now. Raises what writing it raised."""
        writing = self._writing
        if writing is None or not (wait or writing.is_done()):
            return
        self._writing = None
        path = writing.finished()
        self._saved_at_s, self._checkpoint_s = boottime_s(), writing.lasted_s
        more: dict[str, object] = {
            "checkpoint": path.name,
            "checkpoint_s": round(writing.lasted_s, 6),
            "checkpoint_bytes": writing.size_bytes,
            "checkpoint_every_s": round(self._every_s(), 3),
            "checkpoint_cost_s": round(self._stood_still_s or 0.0, 6),
        }
        if self._stated_every_s is None:
            more["time_to_loss_s"] = round(min(self._time_to_loss_s, _TIME_TO_LOSS_MAX_S), 3)
        self._write("checkpoint", writing.step, writing.measured, more=more, durable=True)

    def _take(self) -> Measured:
        """Return what was trained since the last call."""
        measured = self._meter.take()
        return measured if self._is_measured else (0, 0.0, 0.0)

    def _report(self, kind: str, step: int, *, durable: bool = False) -> None:
        self._write(kind, step, self._take(), durable=durable)

    def _write(
        self,
        kind: str,
        step: int,
        measured: Measured,
        *,
        more: Mapping[str, object] = MappingProxyType({}),
        durable: bool = False,
    ) -> None:
        steps, seconds, work = measured
        self._reported_at_s, self._is_report_left = boottime_s(), False
        extra = _filled(
            metrics=self._batches.metrics() | dict(self._metrics),
            total_steps=self._unsaid_steps,
            phases=self._marks.take_phases(),
        )
        self._reports.write(
            kind, step, steps=steps, seconds=seconds, more={**extra, **_filled(work=work), **more}, durable=durable
        )
        self._unsaid_steps = None


def _filled(**fields: object) -> dict[str, object]:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value}
