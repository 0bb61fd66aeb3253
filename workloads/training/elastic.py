"""A perceptron whose steps are the same global batch at every size of its gang: the program of `gavel demo --elastic`.

The gradients are computed. The time of a step is not theirs: each sample takes `--sample-ms` of its worker, and each
update `--update-ms`, the time of an accelerator and of a network that this machine does not have; what computing leaves
of it is waited. Several workers may therefore share a core and a gang still be faster than one of them, as long as the
cores are not busy all the time. Where the submission lets updates grow, they do, by the noise of the gradients.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gavel_runtime import job

Doubles = npt.NDArray[np.float64]
EXAMPLES, FEATURES, HIDDEN = 2048, 24, 16
LEARNING_RATE = 0.05
AT_MOST = 16  # samples at once, as if no more fitted the memory of an accelerator
STATE_FILE, CURVE_FILE = "state.npz", "curve.npy"


class Regression:
    """A layer of tanh units and a linear one, fitted to another of that kind with noise. All in double precision."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._inputs = generator.standard_normal((EXAMPLES, FEATURES))
        teacher = generator.standard_normal((FEATURES, HIDDEN)) / FEATURES**0.5
        self._targets = np.tanh(self._inputs @ teacher).sum(axis=1) + 0.1 * generator.standard_normal(EXAMPLES)
        self.weights: Doubles = generator.standard_normal(FEATURES * HIDDEN + HIDDEN) / FEATURES**0.5

    def gradient_and_loss(self, samples: Sequence[int]) -> Doubles:
        """Return the gradient of the mean loss of the samples, with the mean loss as its last element."""
        rows = np.array(samples) % EXAMPLES
        first, last = self._layers()
        units = np.tanh(self._inputs[rows] @ first)
        error = units @ last - self._targets[rows]
        by_units = 2 / len(rows) * error[:, None] * last * (1 - units**2)
        of_first = self._inputs[rows].T @ by_units
        return np.concatenate((of_first.ravel(), 2 / len(rows) * units.T @ error, [np.mean(error**2)]))

    def _layers(self) -> tuple[Doubles, Doubles]:
        return self.weights[:-HIDDEN].reshape(FEATURES, HIDDEN), self.weights[-HIDDEN:]


class Run:
    """A training and its curve: of each update the mean loss, the size of the gang, and when it was done, Unix time."""

    def __init__(self, seed: int, sample_s: float, update_s: float) -> None:
        self._model = Regression(seed)
        self._sample_s, self._update_s = sample_s, update_s
        self.curve: list[tuple[float, float, float]] = []

    def step(self, step: int, global_batch: int) -> float:
        """Train on the samples of the step, those of all ranks; return their mean loss."""
        total = np.zeros(len(self._model.weights) + 2)
        for part in job.micro_batches(step, at_most=AT_MOST, global_batch=global_batch):
            began_s = time.monotonic()
            own = self._model.gradient_and_loss(part.samples)
            total += part.weight * np.append(own, own[:-1] @ own[:-1])
            time.sleep(max(0.0, began_s + self._sample_s * len(part.samples) - time.monotonic()))
        time.sleep(self._update_s)
        if job.world_size > 1:
            total = np.sum([np.frombuffer(each) for each in job.all_gather(total.tobytes())], axis=0)
        gradient, loss, squares = total[:-2], float(total[-2]), float(total[-1])
        self._model.weights -= LEARNING_RATE * job.gain(squares, float(gradient @ gradient)) * gradient
        self.curve.append((loss, job.world_size, time.time()))
        return loss

    def save(self, folder: Path) -> None:
        """Write parameters and curve."""
        np.savez(folder / STATE_FILE, weights=self._model.weights, curve=np.array(self.curve))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        with np.load(folder / STATE_FILE, allow_pickle=False) as state:
            self._model.weights[:] = state["weights"]
            self.curve = [tuple(row) for row in state["curve"].tolist()]


def main() -> None:
    """Train with the options of the command line; rank 0 leaves the curve, (updates, 3), in the output folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0, help="of the examples and the parameters")
    parser.add_argument("--sample-ms", type=float, default=0.0, help="what a sample takes of its worker")
    parser.add_argument("--update-ms", type=float, default=0.0, help="what an update takes besides its samples")
    parser.add_argument("--global-batch", type=int, default=48, help="samples of a step; Gavel's goes before it")
    parser.add_argument("--steps", type=int, default=300, help="steps when not run by Gavel")
    arguments = parser.parse_args()
    run = Run(arguments.seed, arguments.sample_ms / 1000, arguments.update_ms / 1000)
    for step in job.steps(checkpoint=run.save, restore=run.load, total=arguments.steps):
        job.report(loss=run.step(step, arguments.global_batch))
    if job.is_rank_zero:
        job.output_dir.mkdir(parents=True, exist_ok=True)
        np.save(job.output_dir / CURVE_FILE, np.array(run.curve))


if __name__ == "__main__":
    main()
