"""A JAX training loop that can be preempted: its state is one tree of arrays, saved by Orbax.

from gavel_runtime.jax import checkpointed

run = checkpointed((params, opt_state), total=1000)
params, opt_state = run.state
for step in run.steps():
    params, opt_state, loss = update(params, opt_state, step)
    run.state = params, opt_state
"""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint

from gavel_runtime._job import job
from gavel_runtime._versions import warn_if_untested

__all__ = ["Training", "checkpointed"]

FOLDER = "state"


def checkpointed(state: Any, *, total: int, checkpoint_every_s: float | None = None) -> "Training":
    """Return a training whose `state` is that of the last checkpoint, or the given one at the beginning.

    The tree's shape and its arrays' shapes must be those that were saved. Random keys belong into the state, or are
    folded from the step. Raises ImportError without orbax-checkpoint, and what Orbax raises for another shape.
    """
    warn_if_untested("jax", jax.__version__)
    warn_if_untested("orbax-checkpoint", version("orbax-checkpoint"))
    return Training(state, total, checkpoint_every_s)


class Training:
    """`state` is the tree that is saved: set it at the end of each step."""

    def __init__(self, state: Any, total: int, checkpoint_every_s: float | None) -> None:
        self.state = state
        self._checkpointer = orbax.checkpoint.StandardCheckpointer()
        self._loop = job.loop(
            checkpoint=self._save,
            restore=self._load,
            total=total,
            checkpoint_every_s=checkpoint_every_s,
            every_rank=jax.process_count() > 1,
        )

    def steps(self) -> Iterator[int]:
        """Yield the steps to do, as `job.steps` does. A loop that is left early calls `finish` before."""
        yield from self._loop.steps()

    def finish(self) -> None:
        """End the training with the step in progress, after `state` was set: the job is complete."""
        self._loop.finish_in_step()

    def _save(self, folder: Path) -> None:
        self._checkpointer.save(folder / FOLDER, self.state)
        self._checkpointer.wait_until_finished()

    def _load(self, folder: Path) -> None:
        self.state = self._checkpointer.restore(folder / FOLDER, jax.eval_shape(lambda: self.state))
