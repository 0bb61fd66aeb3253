"""Keras' `model.fit` that can be preempted, between two epochs.

from gavel_runtime.keras import GavelCallback

gavel = GavelCallback(model, epochs=10)
model.fit(x, y, epochs=10, initial_epoch=gavel.initial_epoch, callbacks=gavel.after([EarlyStopping(patience=3)]))
"""

import pickle
from pathlib import Path
from typing import Any

import keras

from gavel_runtime._job import job
from gavel_runtime._versions import warn_if_untested

__all__ = ["GavelCallback"]

FILE = "training.keras"
COUNTERS_FILE = "callbacks.pickle"


class GavelCallback(keras.callbacks.Callback):  # type: ignore[misc]  # its types are not at hand
    """Restores the compiled model when it is made, saves it when Gavel needs it, ends the process with its lease.

    One epoch is one step: leases must be longer than an epoch. What Keras logs is reported as metrics. The order of the
    batches is exact where it depends on the epoch alone (`shuffle=False`, or a data set that is seeded by its epoch).
    """

    def __init__(self, model: Any, epochs: int, checkpoint_every_s: float | None = None) -> None:
        super().__init__()
        warn_if_untested("keras", keras.__version__)
        self._trained = model
        self._others: list[Any] = []
        self._counters: list[dict[str, Any]] = []
        self._loop = job.loop(
            checkpoint=self._save, restore=self._load, total=epochs, checkpoint_every_s=checkpoint_every_s
        )

    @property
    def initial_epoch(self) -> int:
        """The epoch to begin with, for `model.fit`."""
        return self._loop.step

    def after(self, callbacks: Any) -> list[Any]:
        """Return these callbacks, and this one behind them, which saves and restores what they have counted."""
        self._others = keras.tree.flatten(callbacks) if callbacks else []
        return [*self._others, self]

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the callbacks that began before this one, and wait for the first epoch."""
        for other, counters in zip(self._others, self._counters, strict=False):
            vars(other).update(counters)
        self._next()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch, and wait for the next one, unless another callback ended the training: then it is done."""
        if not self._loop.is_ended:
            job.report(**{name: float(value) for name, value in list((logs or {}).items())[:8]})
            self._loop.step_done()
            if not self._trained.stop_training:
                self._next()

    def on_train_end(self, logs: Any = None) -> None:
        """End the loop, also where Keras stops before the last epoch."""
        self._loop.finish()
        self._loop.close()

    def _next(self) -> None:
        if not self._loop.next():
            self._trained.stop_training = True

    def _save(self, folder: Path) -> None:
        self._trained.save(folder / FILE)
        (folder / COUNTERS_FILE).write_bytes(pickle.dumps([_counters(each) for each in self._others]))

    def _load(self, folder: Path) -> None:
        saved = keras.saving.load_model(folder / FILE)
        self._trained.set_weights(saved.get_weights())
        self._trained.optimizer.build(self._trained.trainable_variables)
        for own, kept in zip(self._trained.optimizer.variables, saved.optimizer.variables, strict=True):
            own.assign(kept)
        if (folder / COUNTERS_FILE).exists():  # a checkpoint of an earlier version has none
            self._counters = pickle.loads((folder / COUNTERS_FILE).read_bytes())  # noqa: S301  the job's own


def _counters(callback: Any) -> dict[str, Any]:
    """Return what a callback counts: its numbers, texts and arrays, and no model, function or file."""
    return {name: value for name, value in vars(callback).items() if name[0] != "_" and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, int | float | str) or type(value).__module__ == "numpy"
