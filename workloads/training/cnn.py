"""A small convolutional network on images of ten textures: much moving of memory (im2col) around small products."""

from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from workloads.training.loop import Floats, Rows, Shapes, Vector, main, normal, softmax_cross_entropy

SIDE, COLOURS, KERNEL, FILTERS, CLASSES = 34, 3, 3, 16, 10
OUT = SIDE - KERNEL + 1
POOLED = OUT // 2


class Convolutional:
    """One 3 x 3 convolution, rectified, 2 x 2 mean pooling, one dense layer."""

    shapes: ClassVar[Shapes] = {
        "filters": (COLOURS * KERNEL * KERNEL, FILTERS),
        "filter_bias": (FILTERS,),
        "dense": (POOLED * POOLED * FILTERS, CLASSES),
        "dense_bias": (CLASSES,),
    }
    examples = 1024
    learning_rate = 0.005

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._labels = generator.integers(0, CLASSES, self.examples)
        prototypes = normal(generator, (CLASSES, SIDE, SIDE, COLOURS), 0.25)
        noise = normal(generator, (self.examples, SIDE, SIDE, COLOURS), 1.0)
        self._images: Floats = prototypes[self._labels] + noise

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """He initialisation."""
        for name in ("filters", "dense"):
            weights = parameters[name]
            weights[:] = normal(generator, weights.shape, (2 / weights.shape[0]) ** 0.5)

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """Forward, then backward; the images need no gradient."""
        columns = image_to_columns(self._images[rows])
        convolved = columns @ parameters["filters"] + parameters["filter_bias"]
        np.maximum(convolved, 0, out=convolved)
        pooled = convolved.reshape(-1, POOLED, 2, POOLED, 2, FILTERS).mean(axis=(2, 4)).reshape(len(rows), -1)
        logits = pooled @ parameters["dense"] + parameters["dense_bias"]
        loss, delta = softmax_cross_entropy(logits, self._labels[rows])
        np.matmul(pooled.T, delta, out=gradients["dense"])
        delta.sum(axis=0, out=gradients["dense_bias"])
        pooled_delta = (delta @ parameters["dense"].T).reshape(-1, POOLED, 1, POOLED, 1, FILTERS) * np.float32(0.25)
        spread = np.broadcast_to(pooled_delta, (len(rows), POOLED, 2, POOLED, 2, FILTERS)).reshape(-1, FILTERS)
        convolved_delta = spread * (convolved > 0)
        np.matmul(columns.T, convolved_delta, out=gradients["filters"])
        convolved_delta.sum(axis=0, out=gradients["filter_bias"])
        return loss


def image_to_columns(images: Floats) -> Floats:
    """Return the pixels under the kernel of each output pixel, (batch * out * out, colours * kernel * kernel)."""
    windows = sliding_window_view(images, (KERNEL, KERNEL), axis=(1, 2))
    return windows.reshape(-1, COLOURS * KERNEL * KERNEL)


if __name__ == "__main__":
    main(Convolutional, batch_size=64)
