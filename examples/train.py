"""Logistic regression under Gavel: `gavel submit examples/train.py --steps 3000`. By hand: `python examples/train.py`."""

import numpy as np

from workloads.runtime import job

generator = np.random.default_rng(0)
features = generator.standard_normal((4096, 256))
labels = features @ generator.standard_normal(256) > 0
weights = np.zeros(256)


def save(directory):
    np.save(directory / "weights.npy", weights)


def load(directory):
    weights[:] = np.load(directory / "weights.npy")


for step in job.steps(checkpoint=save, restore=load, total=3000):
    probability = 1 / (1 + np.exp(-(features @ weights)))
    weights -= 0.5 * features.T @ (probability - labels) / len(labels)
    job.report(error=np.mean((probability > 0.5) != labels))

print("error", np.mean((features @ weights > 0) != labels))
