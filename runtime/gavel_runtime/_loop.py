"""A training loop, one step at a time: `job.steps` and the callbacks of training libraries both go through it."""

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol

from gavel_runtime._batches import Batches
from gavel_runtime._hub import GO, SAVE, STOP, Spoke
from gavel_runtime._leader import EXIT_PREEMPTED, Save
from gavel_runtime._marks import Marks
from gavel_runtime._setting import Setting


class Side(Protocol):
    """What a rank does for its gang between two steps: `Leader` for rank 0, `Follower` for the others."""

    step: int

    def order(self) -> bytes:
        """Return what to do next: GO, SAVE, STOP or END."""

    def save(self, save: Save) -> None:
        """Carry out SAVE."""

    def step_done(self, *, logs_later: bool = False) -> None:
        """Count the step that GO allowed."""

    def finish(self, *, saves: bool = True) -> None:
        """End the loop at this step."""

    def close(self) -> None:
        """Close what is open."""


class Loop:
    """One rank's loop. `step` is the next step to do, `checkpoint` the folder to resume from, None at the beginning.

    while loop.next():
        train(loop.step)
        loop.step_done()

    A library that saves by itself asks `order()` in place of `next()`, and answers SAVE with `save(function)`.
    """

    def __init__(self, side: Side, save: Save | None, checkpoint: Path | None, stop_signal: "StopSignal") -> None:
        self._side = side
        self._save = save
        self._stop_signal = stop_signal
        self.checkpoint = checkpoint
        self.is_ended = False

    @property
    def step(self) -> int:
        """The next step to do, from 0."""
        return self._side.step

    def next(self) -> bool:
        """Wait until the next step may be done: True; False when all are done. Writes the checkpoints that are due.

        Raises SystemExit(75) when the job must stop, and GangError when a rank is lost.
        """
        while (order := self.order()) == SAVE:
            if self._save is None:
                raise RuntimeError("a checkpoint is due, but this loop has no function that writes one")
            self.save(self._save)
        return order == GO

    def order(self) -> bytes:
        """Return GO (do the step), SAVE (call `save`, then ask again) or END; raises SystemExit(75), GangError."""
        order = self._side.order()
        if order == STOP:
            self._stop_signal.close(leaves=True)
            self._side.close()
            raise SystemExit(EXIT_PREEMPTED)
        self.is_ended = order not in (GO, SAVE)
        return order

    def save(self, save: Save) -> None:
        """Let `save` fill the checkpoint's folder; it counts once it is on the disk."""
        self._side.save(save)

    def step_done(self, *, logs_later: bool = False) -> None:
        """Say that the step which `next` allowed is done; `logs_later`: its metrics are reported only after this."""
        self._side.step_done(logs_later=logs_later)

    def finish(self, *, saves: bool = True) -> None:
        """End the training here, also before the last step: the program decides how long it is, and the job completes.

        `saves`: with a checkpoint of this step.
        """
        while not self.is_ended:
            self._side.finish(saves=saves)
            self.next()

    def steps(self) -> Iterator[int]:
        """Yield each step to do, and count it once the next one is asked for."""
        with self:
            while not self.is_ended and self.next():
                yield self.step
                if not self.is_ended:
                    self.step_done()

    def finish_in_step(self) -> None:
        """Count the step that `steps` has yielded as the last one, and end the training."""
        if not self.is_ended:
            self.step_done()
            self.finish()

    def close(self) -> None:
        """Give the signal back and close the files; safe to repeat."""
        self._stop_signal.close(leaves=False, is_complete=self.is_ended)
        self._side.close()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Follower:
    """The side of every rank but 0. `checkpoint_dir` is where rank 0 makes the folder of a checkpoint."""

    def __init__(
        self,
        setting: Setting,
        spoke: Spoke,
        step: int,
        *,
        marks: Marks,
        batches: Batches,
        asked_to_stop: Callable[[], bool],
    ) -> None:
        self.step = step
        self._batches = batches
        self._directory = setting.checkpoint_dir
        self._spoke = spoke
        self._asked_to_stop = asked_to_stop
        self._marks = marks
        self._marks.take_step()  # what was before the first step
        self._name = ""

    def order(self) -> bytes:
        """Wait for the order of rank 0. Raises GangError."""
        order, step, self._name = self._spoke.order(None if self._batches.may_grow else self.step)
        if order == GO:
            self.step = step
            self._batches.follow(self._name)
        return order

    def save(self, save: Save) -> None:
        """Write this rank's part of the checkpoint, whole before rank 0 is told."""
        assert self._directory is not None
        folder = self._directory / self._name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # on another node without a shared folder it is not there
        rest = save(folder)
        if callable(rest):
            rest()
        self._spoke.step_done(asked_to_stop=self._asked_to_stop())

    def step_done(self, *, logs_later: bool = False) -> None:
        """Tell rank 0."""
        self.step += 1
        self._spoke.step_done(asked_to_stop=self._asked_to_stop(), outside_s=self._marks.take_step()[0])

    def finish(self, *, saves: bool = True) -> None:
        """Nothing to do: rank 0 orders the end."""

    def close(self) -> None:
        """Nothing is open."""


class StopSignal:
    """Records SIGTERM from its making until `close`; a call returns whether one came. Only works in the main thread.

    A process that leaves because its lease is over ignores the signal from then on: the supervisor sends it at the same
    instant, and it would kill the process in the middle of its exit, before its exit code and its own cleaning up.
    `has_grace`: after its last step the process may use the grace between the signal and the kill, too, for what
    follows its loop. Killed there by the signal, it would begin that again, without the variables of the loop.
    """

    def __init__(self, *, has_grace: bool = False) -> None:
        self._came = False
        self._has_grace = has_grace
        self._is_open = threading.current_thread() is threading.main_thread()
        if self._is_open:
            self._before = signal.signal(signal.SIGTERM, self._remember)

    def __call__(self) -> bool:
        return self._came

    def close(self, *, leaves: bool, is_complete: bool = False) -> None:
        """Give the signal back, or, for a process that leaves, ignore it. The first call counts.

        If training `is_complete`, it goes back only to a handler of the program. Otherwise it stays recorded: ignored,
        it would be so in programs that this one starts, too. From the exit on it is ignored all the same, because
        Python then gives up its handlers before it unloads libraries, which takes a while for large ones.
        """
        if not self._is_open:
            return
        self._is_open = False
        has_grace = is_complete and self._has_grace
        if has_grace:
            atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
        if leaves:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif not (has_grace and self._before == signal.SIG_DFL):
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._came = True
