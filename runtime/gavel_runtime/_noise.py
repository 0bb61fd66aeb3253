"""How much larger batches are worth: the noise of gradients, measured, and the gain of an update by AdaScale's rule.

Source: Johnson et al., AdaScale SGD (ICML 2020), sections 3 and 4.
"""

import math
from dataclasses import dataclass

MEMORY = 1000  # updates of one batch over which the averages reach; an update of k batches counts like k of them


@dataclass(frozen=True, slots=True)
class Noise:
    """Averages over the updates so far: `variance` is the trace of the covariance of the gradient of one sample,
    `square` the squared norm of the gradient of the whole loss. `weight` of 1 what they already rest on.
    """

    variance: float = 0.0
    square: float = 0.0
    weight: float = 0.0

    def seen(self, *, squares: float, whole: float, samples: int, parts: int, batches: int) -> "Noise":
        """Return the averages with one more update, of `samples` in `parts`, which took `batches` batches.

        `squares` is the sum, over the parts, of weight times squared norm of the mean gradient, `whole` the squared
        norm of the mean gradient of all samples. As E[squares] = square + parts variance / samples and
        E[whole] = square + variance / samples, their difference has the variance in it, and nothing else.
        """
        if parts < 2 or not (math.isfinite(squares) and math.isfinite(whole)):
            return self
        variance = samples * (squares - whole) / (parts - 1)
        square = whole - variance / samples
        old = max(0.0, 1.0 - batches / MEMORY)
        return Noise(
            variance=old * self.variance + (1 - old) * variance,
            square=old * self.square + (1 - old) * square,
            weight=old * self.weight + (1 - old),
        )

    def gain(self, batch: int, batches: int) -> float:
        """Return how many updates of one batch of `batch` samples one of `batches` batches is worth, 1 to `batches`.

        r = (variance / B + square) / (variance / (k B) + square): k where all is noise, 1 where there is none.
        """
        if self.weight <= 0 or batches == 1:
            return 1.0
        variance, square = max(0.0, self.variance) / batch, max(0.0, self.square)
        below = variance / batches + square
        return min(float(batches), max(1.0, (variance + square) / below)) if below > 0 else 1.0
