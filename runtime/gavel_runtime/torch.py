"""A PyTorch training loop that can be preempted: a few changed lines in a script of any shape.

    from gavel_runtime.torch import checkpointed

    run = checkpointed(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, epochs=10)
    for epoch in run.epochs():              # in place of range(10)
        for images, labels in run.batches():     # in place of loader
            ...

Outside Gavel the same script runs from its beginning to its end.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from gavel_runtime._global_batches import GlobalBatches, Part, sum_gradients
from gavel_runtime._job import job
from gavel_runtime._loading import ResumableLoader
from gavel_runtime._torch_state import Gradients, TorchState, Values
from gavel_runtime._versions import warn_if_untested

__all__ = ["GlobalBatches", "Part", "ResumableLoader", "Training", "checkpointed", "sum_gradients"]


def checkpointed(
    *,
    loader: Any,
    epochs: int,
    accelerator: Any = None,
    gradients: torch.nn.Module | None = None,
    values: Callable[[], tuple[Any, ...]] | None = None,
    checkpoint_every_s: float | None = None,
    **objects: Any,
) -> "Training":
    """Return a training that goes on where its last checkpoint was taken, in the middle of an epoch too.

    `objects` are the model, optimizer, scheduler, scaler and whatever else has a `state_dict`; each is saved and
    restored, with the loader's position and the random states of Python, NumPy, torch and the device, of every rank.
    The state is copied to host memory and written in a thread. Parameters that FSDP shards are written by all ranks,
    in a folder that they must share. In place of `objects` an `accelerator` of Accelerate may be given, which saves
    what it has prepared. One batch is one step. `gradients` is the model whose gradients are summed over several
    batches: they are in no `state_dict`, and are saved as well. `values` returns those variables of the script that
    one step leaves to the next, such as the best loss so far; assign `run.values` to them before the loop. With
    `GlobalBatches` as its loader an elastic job goes on at any other size. Raises
    TypeError naming an object without a state, or a loader without a length; all that `job.loop` raises.
    """
    warn_if_untested("torch", torch.__version__)
    if not hasattr(loader, "__len__"):
        raise TypeError("loader: it has no length, so one batch cannot be one step; use job.steps(total=..) instead")
    own: dict[str, Any] = {} if gradients is None else {"gradients": Gradients(gradients)}
    own |= {} if values is None else {"values": Values(values)}
    resumable = loader if isinstance(loader, GlobalBatches) else ResumableLoader(loader)
    return Training(objects, own, resumable, epochs, accelerator, checkpoint_every_s)


class Training:
    """Epochs and batches still to do; made by `checkpointed`."""

    def __init__(
        self,
        objects: dict[str, Any],
        own: dict[str, Any],
        loader: ResumableLoader | GlobalBatches,
        epochs: int,
        accelerator: Any,
        checkpoint_every_s: float | None,
    ) -> None:
        self._loader = loader
        self._epochs = epochs
        self._epoch = 0
        self._is_in_batch = False
        self._accelerator = accelerator
        self._values: Values | None = own.get("values")
        is_elastic = isinstance(loader, GlobalBatches)
        self._state = TorchState(objects, {"position": self, "loader": loader, **own}, is_elastic=is_elastic)
        self._loop = job.loop(
            checkpoint=self._save,
            restore=self._load,
            total=epochs * len(loader),
            checkpoint_every_s=checkpoint_every_s,
            every_rank=True,
        )

    @property
    def step(self) -> int:
        """The number of batches that are done, of all epochs."""
        return self._loop.step

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return self._epoch

    @property
    def first_batch(self) -> int:
        """The number of the batch that `batches` begins with: 0, unless the job resumes in the middle of an epoch."""
        return self._loader.begins_at

    @property
    def values(self) -> tuple[Any, ...]:
        """The variables that `checkpointed` was given as `values`: those of the checkpoint, else as they are."""
        if self._values is None:
            raise ValueError(
                "values: checkpointed was given none; write checkpointed(.., values=lambda: (best, count))"
            )
        return self._values.latest()

    def epochs(self, first: int = 0) -> Iterator[int]:
        """Yield the epochs still to do, from the one in which the checkpoint was taken. Ends with a checkpoint.

        Their numbers begin with `first`. A loop that is left by `break` or `return` calls `finish` before.
        Raises SystemExit(75) when the job must stop, between two batches.
        """
        for epoch in range(self._epoch, self._epochs):
            self._epoch = epoch
            yield first + epoch
            if self._loop.is_ended:  # fewer steps were submitted than the script has, or `finish` was called
                break
        self.finish()

    def finish(self) -> None:
        """End the training here, before its last epoch too, with a checkpoint: the job is complete. Safe to repeat."""
        self._count_batch()
        if not self._loop.is_ended:
            self._epoch = self._epochs
        self._loop.finish()
        self._loop.close()

    def batches(self) -> Iterator[Any]:
        """Yield the batches of this epoch that are still to do. The loop may be left by `break`."""
        self._count_batch()
        batches = iter(self._loader)
        while not self._loop.is_ended and self._loader.position < len(self._loader) and self._loop.next():
            batch = next(batches, None)
            if batch is None:
                return
            self._is_in_batch = True
            yield batch
            self._count_batch()

    def _count_batch(self) -> None:
        """Count the batch in progress; that of a loop which was left by `break` once the training goes on."""
        if self._is_in_batch and not self._loop.is_ended:
            self._loop.step_done()
        self._is_in_batch = False

    def state_dict(self) -> dict[str, int]:
        """Return the epoch."""
        return {"epoch": self._epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on in the epoch of `state`."""
        self._epoch = state["epoch"]

    def _save(self, folder: Path) -> Any:
        if self._accelerator is not None:
            self._accelerator.save_state(str(folder / "accelerator"))
        return self._state.save(folder)

    def _load(self, folder: Path) -> None:
        if self._accelerator is not None:
            self._accelerator.load_state(str(folder / "accelerator"))
        self._state.load(folder)
