"""Logistic regression. By hand: `python examples/train.py`; else `gavel job submit --steps 3000 examples/train.py`."""

from pathlib import Path

import numpy as np

from gavel_runtime import job

generator = np.random.default_rng(0)
features = generator.standard_normal((4096, 256))
labels = features @ generator.standard_normal(256) > 0
weights = np.zeros(256)


def save(directory: Path) -> None:
    """Gavel calls this between steps, with an empty directory."""
    np.save(directory / "weights.npy", weights)


def load(directory: Path) -> None:
    """Gavel calls this first when there is a checkpoint."""
    weights[:] = np.load(directory / "weights.npy")


for step in job.steps(checkpoint=save, restore=load, total=3000):
    batch = np.random.default_rng(step).integers(0, len(labels), 128)
    probability = 1 / (1 + np.exp(-(features[batch] @ weights)))
    weights -= 0.2 * features[batch].T @ (probability - labels[batch]) / len(batch)
    job.report(error=np.mean((probability > 0.5) != labels[batch]))

print("error", np.mean((features @ weights > 0) != labels))
