"""A Lightning Trainer that can be preempted.

from gavel_runtime.lightning import GavelCallback

gavel = GavelCallback(loader)
trainer = lightning.Trainer(max_epochs=3, callbacks=[gavel])
trainer.fit(model, gavel.loader, ckpt_path=gavel.checkpoint)
"""

import math
from pathlib import Path
from typing import Any

import lightning
import torch

from gavel_runtime._job import job
from gavel_runtime._loading import ResumableLoader
from gavel_runtime._loop import Loop
from gavel_runtime._versions import warn_if_untested

__all__ = ["GavelCallback"]

FILE = "lightning.ckpt"


class GavelCallback(lightning.Callback):  # type: ignore[misc]  # its types are not at hand
    """Saves with the Trainer's own checkpoint when Gavel needs one, and ends the process when its lease is over.

    `loader` wraps the training loader so that it continues in the middle of an epoch. Given a data module, it wraps the
    loader that this makes for training, and `loader` is the data module. One training batch is one step.
    What the module logs is reported as metrics. `total`: the number of batches, where the Trainer has no number of
    epochs. Leases must last for a validation, before which the job does not stop.
    """

    def __init__(self, loader: Any, *, total: int | None = None, checkpoint_every_s: float | None = None) -> None:
        warn_if_untested("lightning", lightning.__version__)
        self._position: dict[str, Any] | None = None
        self._resumable: ResumableLoader | None = None
        if job.checkpoint is not None:
            self._load_position(job.checkpoint)  # before the Trainer begins to draw batches
        self.loader = self._wrapped(loader)
        self._total = total
        self._checkpoint_every_s = checkpoint_every_s
        self._loop: Loop | None = None

    @property
    def checkpoint(self) -> str | None:
        """The file for `trainer.fit(.., ckpt_path=..)`; None at the beginning."""
        return None if job.checkpoint is None else str(job.checkpoint / FILE)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Join the gang."""
        self._loop = job.loop(
            checkpoint=lambda folder: self._save(trainer, folder),
            restore=lambda path: None,  # the Trainer did it
            total=self._total or _batches(trainer),
            checkpoint_every_s=self._checkpoint_every_s,
            every_rank=True,
        )
        self._next(trainer)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Count the step. The job may stop here, but where an epoch ends or a validation follows one batch later.

        A Trainer that resumes between two epochs does not do the schedulers' step of the epoch that ended, and one that
        resumes before a validation leaves it out. Where the training ends early the job stops no more: it is done.
        """
        assert self._loop is not None
        if self._loop.is_ended:
            return
        _report(trainer)
        self._loop.step_done()
        if not (trainer.is_last_batch or _validates(trainer, index, self._loop.step) or _ends(trainer)):
            self._next(trainer)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Write the last checkpoint and end the loop."""
        if self._loop is not None:
            self._loop.finish()  # also where the Trainer stops before its last epoch
            self._loop.close()

    def _next(self, trainer: Any) -> None:
        assert self._loop is not None
        if not self._loop.next():
            trainer.should_stop = True

    def _save(self, trainer: Any, folder: Path) -> None:
        trainer.save_checkpoint(str(folder / FILE))
        assert self._resumable is not None  # the Trainer has asked for it before it trained
        torch.save(self._resumable.state_dict(), folder / f"loader-{job.rank}.pt")

    def _load_position(self, folder: Path) -> None:
        """Continue in the loader where this rank was: the Trainer knows the position of rank 0, within an epoch."""
        own = folder / f"loader-{job.rank}.pt"
        if own.exists():  # of another rank, on a node that shares no folder with this one, it is not there
            self._position = torch.load(own, weights_only=False)

    def _wrapped(self, source: Any) -> Any:
        """Return the loader as one that resumes; the data module with such a loader in place of its own."""
        if not isinstance(source, lightning.LightningDataModule):
            return self._resuming(source)
        make = source.train_dataloader
        source.train_dataloader = lambda: self._resuming(make())
        return source

    def _resuming(self, loader: Any) -> ResumableLoader:
        """Return the loader, which begins where the checkpoint was taken if it is the first one."""
        self._resumable = ResumableLoader(loader)
        if self._position is not None:
            self._resumable.load_state_dict(self._position)
            self._position = None
        return self._resumable


def _batches(trainer: Any) -> int | None:
    """Return the number of training batches of all epochs; None if there is no end."""
    per_epoch, epochs = trainer.num_training_batches, trainer.max_epochs
    return None if math.isinf(per_epoch) or epochs in (None, -1) else int(per_epoch) * int(epochs)


def _validates(trainer: Any, index: int, step: int) -> bool:
    """Return whether a validation follows the batch of this index in its epoch, which was the step before `step`."""
    done = step if trainer.check_val_every_n_epoch is None else index + 1
    return trainer.enable_validation and not math.isinf(trainer.val_check_batch) and done % trainer.val_check_batch == 0


def _ends(trainer: Any) -> bool:
    """Return whether the Trainer heeds that it should stop: it does not before its least number of epochs and steps."""
    epochs, steps = trainer.min_epochs or 0, trainer.min_steps or 0
    return bool(trainer.should_stop and trainer.current_epoch >= epochs and trainer.global_step >= steps)


def _report(trainer: Any) -> None:
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    job.report(**dict(list(metrics.items())[:8]))
