"""The training loop that the five programs share: seeded batches, averaged gradients, exact resumption.

All parameters of a model are views into one flat float32 vector, and so are their gradients. Averaging over ranks,
the optimizer and the checkpoint then each handle one array. The batch of a step follows from (seed, step) alone, so a
run that was interrupted ends with the same parameters, bit for bit, as one that was not.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from gavel_runtime import job

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Shapes = Mapping[str, tuple[int, ...]]
MOMENTUM = 0.9
STATE_FILE = "state.npz"


class Vector:
    """One flat float32 vector and its named views, `vector["weights"]`. Its last element, `extra`, is in no view."""

    def __init__(self, shapes: Shapes) -> None:
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        self.whole: Floats = np.zeros(sum(sizes) + 1, dtype=np.float32)
        self.flat, self.extra = self.whole[:-1], self.whole[-1:]
        parts = np.split(self.flat, np.cumsum(sizes)[:-1])
        self._views = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def __getitem__(self, name: str) -> Floats:
        return self._views[name]


class Model(Protocol):
    """A model and the examples it learns from."""

    shapes: ClassVar[Shapes]
    """Shape of each parameter."""
    examples: int
    """Rows of a batch are drawn from range(examples)."""
    learning_rate: float

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """Fill the parameters (all zero before)."""

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """The mean loss of the rows; overwrites every gradient with that of the mean loss."""


class Trainer:
    """Parameters and optimizer state of a model; the same in every rank."""

    def __init__(self, model: Model, *, batch_size: int, seed: int) -> None:
        if batch_size < job.world_size:
            raise ValueError(f"--batch-size: {batch_size} examples are too few for a gang of {job.world_size}")
        self._model = model
        self._batch_size = batch_size
        self._seed = seed
        self.parameters = Vector(model.shapes)
        self._gradients = Vector(model.shapes)
        self._velocity = np.zeros_like(self.parameters.flat)
        model.initialise(self.parameters, np.random.default_rng(seed))

    def step(self, step: int) -> float:
        """Train on batch `step` and return its mean loss (the same in every rank)."""
        rows = np.random.default_rng((self._seed, step)).integers(0, self._model.examples, self._batch_size)
        mine = rows[job.rank :: job.world_size]
        loss = self._model.loss_and_gradients(self.parameters, self._gradients, mine)
        if job.world_size > 1:
            loss = average_over_ranks(loss, self._gradients, weight=len(mine) / self._batch_size)
        self._velocity *= np.float32(MOMENTUM)
        self._velocity += self._gradients.flat
        self.parameters.flat -= np.float32(self._model.learning_rate) * self._velocity
        return loss

    def save(self, directory: Path) -> None:
        """Write parameters and optimizer state."""
        np.savez(directory / STATE_FILE, parameters=self.parameters.flat, velocity=self._velocity)

    def load(self, directory: Path) -> None:
        """Read what `save` wrote."""
        with np.load(directory / STATE_FILE, allow_pickle=False) as state:
            self.parameters.flat[:] = state["parameters"]
            self._velocity[:] = state["velocity"]


def average_over_ranks(loss: float, gradients: Vector, *, weight: float) -> float:
    """Return the mean loss over all ranks and set the gradients to their mean; `weight` is this rank's part of a batch.

    The sum is in the order of ranks, so that every rank gets the same bits.
    """
    total = gradients.whole
    gradients.extra[:] = loss
    total *= np.float32(weight)
    parts = job.all_gather(total.tobytes())
    total[:] = np.frombuffer(parts[0], dtype=np.float32)
    for part in parts[1:]:
        total += np.frombuffer(part, dtype=np.float32)
    return float(gradients.extra[0])


def softmax_cross_entropy(logits: Floats, labels: Rows) -> tuple[float, Floats]:
    """Return the mean loss of (batch, classes) logits, and its gradient by the logits."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = shifted / shifted.sum(axis=1, keepdims=True)
    picked = (np.arange(len(labels)), labels)
    loss = -float(np.log(probability[picked] + np.float32(1e-9)).mean())
    probability[picked] -= 1
    return loss, probability / np.float32(len(labels))


def normal(generator: np.random.Generator, shape: tuple[int, ...], scale: float) -> Floats:
    """Return normal random numbers with this standard deviation."""
    return generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def main(build: Callable[[int], Model], *, batch_size: int, steps: int = 300) -> None:
    """Train `build(seed)` with the options of the command line; the defaults suit a run by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=batch_size, help="examples of a step, over all ranks")
    parser.add_argument("--seed", type=int, default=0, help="of the examples, the parameters and the batches")
    parser.add_argument("--steps", type=int, default=steps, help="steps when not run by Gavel")
    arguments = parser.parse_args()
    trainer = Trainer(build(arguments.seed), batch_size=arguments.batch_size, seed=arguments.seed)
    for step in job.steps(checkpoint=trainer.save, restore=trainer.load, total=arguments.steps):
        loss = trainer.step(step)
        job.report(loss=loss)
        if step == 0:
            job.report(first_loss=loss)
        if job.is_rank_zero and step % 100 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    if job.is_rank_zero:
        print("trained", flush=True)
