"""A recurrent network that predicts the next value of mixed waves: many small products and tanh, one after another."""

from typing import ClassVar

import numpy as np

from workloads.training.loop import Floats, Rows, Shapes, Vector, main, normal

CHANNELS, HIDDEN, LENGTH = 16, 128, 32


class Recurrent:
    """h[t] = tanh(x[t] W + h[t-1] U + b), prediction h[t] V; back-propagation through time."""

    shapes: ClassVar[Shapes] = {
        "inputs": (CHANNELS, HIDDEN),
        "recurrent": (HIDDEN, HIDDEN),
        "bias": (HIDDEN,),
        "outputs": (HIDDEN, CHANNELS),
    }
    examples = 2048
    learning_rate = 0.02

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        frequency = generator.uniform(0.1, 0.5, (1, self.examples, CHANNELS))
        phase = generator.uniform(0, 2 * np.pi, (1, self.examples, CHANNELS))
        instants = np.arange(LENGTH + 1).reshape(-1, 1, 1)
        self._waves: Floats = np.sin(frequency * instants + phase).astype(
            np.float32
        )  # (length + 1, examples, channels)

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """Small random weights."""
        for name in ("inputs", "recurrent", "outputs"):
            weights = parameters[name]
            weights[:] = normal(generator, weights.shape, 0.7 / weights.shape[0] ** 0.5)

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """Mean squared error over all instants."""
        waves = self._waves[:, rows]
        states = self._states(parameters, waves[:-1])
        error: Floats = states[1:] @ parameters["outputs"] - waves[1:]
        loss = float(np.square(error).mean())
        error *= np.float32(2 / error.size)
        flat_error = error.reshape(-1, CHANNELS)
        np.matmul(states[1:].reshape(-1, HIDDEN).T, flat_error, out=gradients["outputs"])
        delta = self._back_through_time(parameters, states, error @ parameters["outputs"].T).reshape(-1, HIDDEN)
        np.matmul(waves[:-1].reshape(-1, CHANNELS).T, delta, out=gradients["inputs"])
        np.matmul(states[:-1].reshape(-1, HIDDEN).T, delta, out=gradients["recurrent"])
        delta.sum(axis=0, out=gradients["bias"])
        return loss

    def _states(self, parameters: Vector, inputs: Floats) -> Floats:
        """Return the hidden states, (length + 1, batch, hidden); the first is zero."""
        driven = inputs @ parameters["inputs"] + parameters["bias"]
        states = np.zeros((LENGTH + 1, inputs.shape[1], HIDDEN), dtype=np.float32)
        for t in range(LENGTH):
            np.tanh(driven[t] + states[t] @ parameters["recurrent"], out=states[t + 1])
        return states

    def _back_through_time(self, parameters: Vector, states: Floats, delta: Floats) -> Floats:
        """Turn gradients by the states, (length, batch, hidden), into those by the sum inside each tanh, in place."""
        backward = parameters["recurrent"].T
        slope = 1 - np.square(states[1:])
        delta[-1] *= slope[-1]
        for t in reversed(range(LENGTH - 1)):
            delta[t] = (delta[t] + delta[t + 1] @ backward) * slope[t]
        return delta


if __name__ == "__main__":
    main(Recurrent, batch_size=256)
