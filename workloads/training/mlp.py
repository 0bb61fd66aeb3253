"""A multi-layer perceptron on noisy images of ten classes: dense matrix products gain most from vector units."""

from typing import ClassVar

import numpy as np

from workloads.training.loop import Floats, Rows, Shapes, Vector, main, normal, softmax_cross_entropy

PIXELS, HIDDEN, CLASSES = 784, 512, 10


class Perceptron:
    """784-512-512-10 with rectified linear units."""

    shapes: ClassVar[Shapes] = {
        "weights_1": (PIXELS, HIDDEN),
        "bias_1": (HIDDEN,),
        "weights_2": (HIDDEN, HIDDEN),
        "bias_2": (HIDDEN,),
        "weights_3": (HIDDEN, CLASSES),
        "bias_3": (CLASSES,),
    }
    examples = 4096
    learning_rate = 0.01

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._labels = generator.integers(0, CLASSES, self.examples)
        prototypes = normal(generator, (CLASSES, PIXELS), 0.25)
        self._images: Floats = prototypes[self._labels] + normal(generator, (self.examples, PIXELS), 1.0)

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """He initialisation."""
        for name in ("weights_1", "weights_2", "weights_3"):
            weights = parameters[name]
            weights[:] = normal(generator, weights.shape, (2 / weights.shape[0]) ** 0.5)

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """Forward, then backward layer by layer."""
        activations = [self._images[rows]]
        for layer in (1, 2):
            outputs = activations[-1] @ parameters[f"weights_{layer}"] + parameters[f"bias_{layer}"]
            activations.append(np.maximum(outputs, 0, out=outputs))
        logits = activations[-1] @ parameters["weights_3"] + parameters["bias_3"]
        loss, delta = softmax_cross_entropy(logits, self._labels[rows])
        for layer in (3, 2, 1):
            inputs = activations[layer - 1]
            np.matmul(inputs.T, delta, out=gradients[f"weights_{layer}"])
            delta.sum(axis=0, out=gradients[f"bias_{layer}"])
            if layer > 1:
                delta = (delta @ parameters[f"weights_{layer}"].T) * (inputs > 0)
        return loss


if __name__ == "__main__":
    main(Perceptron, batch_size=256)
