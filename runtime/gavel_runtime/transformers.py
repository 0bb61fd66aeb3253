"""A Hugging Face Trainer that can be preempted.

from gavel_runtime.transformers import GavelCallback

gavel = GavelCallback()
trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[gavel])
trainer.train(resume_from_checkpoint=gavel.checkpoint)
"""

import shutil
from pathlib import Path
from typing import Any

import transformers

from gavel_runtime._hub import END, SAVE
from gavel_runtime._job import job
from gavel_runtime._loop import Loop
from gavel_runtime._versions import warn_if_untested

__all__ = ["GavelCallback"]


class GavelCallback(transformers.TrainerCallback):  # type: ignore[misc]  # its types are not at hand
    """Lets the Trainer save when Gavel needs a checkpoint, and ends the process when its lease is over.

    One optimizer step is one step. Checkpoints are the Trainer's own; those that only Gavel asked for are moved out of
    its output folder. What the Trainer logs is reported as metrics. In a gang all ranks must share the output folder.
    """

    def __init__(self, checkpoint_every_s: float | None = None) -> None:
        warn_if_untested("transformers", transformers.__version__)
        self._checkpoint_every_s = checkpoint_every_s
        self._loop: Loop | None = None
        self._is_saving = False
        self._is_kept = False

    @property
    def checkpoint(self) -> str | None:
        """The folder for `trainer.train(resume_from_checkpoint=..)`; None at the beginning."""
        return None if job.checkpoint is None else str(job.checkpoint)

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have the Trainer restore its callbacks, too: early stopping counts on from where it was."""
        args.restore_callback_states_from_checkpoint |= self.checkpoint is not None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Join the gang. Raises RuntimeError if the Trainer did not load the checkpoint."""
        self._loop = job.loop(
            checkpoint=self._save_by_trainer,
            restore=lambda path: None,  # the Trainer did it
            total=state.max_steps,
            checkpoint_every_s=self._checkpoint_every_s,
            every_rank=True,
        )
        if self._loop.step != state.global_step:
            raise RuntimeError(
                f"the checkpoint has {self._loop.step} steps and the Trainer is at {state.global_step}: write "
                "trainer.train(resume_from_checkpoint=gavel.checkpoint), gavel being this callback"
            )
        self._ask(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step, and wait for the next one, or have the Trainer save first."""
        if self._loop is not None and not self._loop.is_ended:
            self._loop.step_done(logs_later=True)
            self._ask_unless_ended(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hand the checkpoint to Gavel that the Trainer has written because Gavel asked for it."""
        if self._loop is not None and self._is_saving:
            self._is_saving = False
            written = Path(args.output_dir, f"checkpoint-{state.global_step}")
            self._loop.save(lambda folder: self._hand_over(written, folder))
            self._ask_unless_ended(state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Report the loss, the learning rate and the norm of the gradient where the Trainer logs them."""
        names = ("loss", "eval_loss", "learning_rate", "grad_norm")
        job.report(**{name: float(logs[name]) for name in names if name in (logs or {})})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the loop. The Trainer may have stopped before its last step; then what it has saved is there to load."""
        if self._loop is not None:
            self._loop.finish(saves=False)
            self._loop.close()

    def _ask_unless_ended(self, state: Any, control: Any) -> None:
        """Ask for the next step. After the one where a callback ends the training the job stops no more: it is done."""
        if not control.should_training_stop or state.global_step >= state.max_steps:
            self._ask(control)

    def _ask(self, control: Any) -> None:
        assert self._loop is not None
        order = self._loop.order()
        if order == SAVE:
            self._is_saving, self._is_kept = True, control.should_save
            control.should_save = True
        elif order == END:
            control.should_training_stop = True

    def _hand_over(self, written: Path, folder: Path) -> None:
        """Move the Trainer's checkpoint into the folder, or copy one that the Trainer keeps, once all ranks wrote."""
        if job.world_size > 1:
            job.all_gather(b"")
        if not job.is_rank_zero:
            return
        shutil.copytree(written, folder, dirs_exist_ok=True)
        if not self._is_kept:
            shutil.rmtree(written)

    def _save_by_trainer(self, folder: Path) -> None:
        raise RuntimeError(
            "the Trainer did not save when it was asked to: is save_only_model set, or another callback?"
        )
