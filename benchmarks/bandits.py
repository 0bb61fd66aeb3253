"""Selectors that learn from the rewards of epochs, as baselines of the autopilot: random, UCB1, LinUCB.

A reward is in [0, 1], the larger the better: 1 / (1 + cost of the epoch over the mean cost of the epochs so far).
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gavel.types import FloatArray

ALPHA = 1.0  # how much a width counts


class Selector(Protocol):
    """Chooses one of n arms for each epoch, and learns what it brought."""

    def choose(self, features: FloatArray) -> int:
        """Return the arm for an epoch with these features, (d,)."""

    def learn(self, arm: int, features: FloatArray, reward: float) -> None:
        """Learn what the arm brought in an epoch that had these features."""


@dataclass(frozen=True, slots=True)
class AtRandom:
    """A random arm each time."""

    arms: int
    random: np.random.Generator

    def choose(self, features: FloatArray) -> int:
        """Return any arm."""
        return int(self.random.integers(self.arms))

    def learn(self, arm: int, features: FloatArray, reward: float) -> None:
        """Learn nothing."""


@dataclass(slots=True)
class Ucb1:
    """The arm with the largest mean reward and sqrt(2 ln t / n) (Auer et al., 2002); each arm once at first."""

    arms: int
    counts: FloatArray = field(init=False)
    sums: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.counts, self.sums = np.zeros(self.arms), np.zeros(self.arms)

    def choose(self, features: FloatArray) -> int:
        """Return an arm that was never tried, else the one with the largest upper bound."""
        if not self.counts.all():
            return int(self.counts.argmin())
        width = np.sqrt(2 * np.log(self.counts.sum()) / self.counts)
        return int((self.sums / self.counts + width).argmax())

    def learn(self, arm: int, features: FloatArray, reward: float) -> None:
        """Count the reward."""
        self.counts[arm] += 1
        self.sums[arm] += reward


@dataclass(slots=True)
class LinUcb:
    """The arm with the largest theta' x + alpha sqrt(x' A^-1 x), A and theta of its own (Li et al., 2010)."""

    arms: int
    features: int
    weights: FloatArray = field(init=False)
    moments: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.stack([np.eye(self.features)] * self.arms)
        self.moments = np.zeros((self.arms, self.features))

    def choose(self, features: FloatArray) -> int:
        """Return the arm with the largest upper bound for these features."""
        expected = [features @ np.linalg.solve(*pair) for pair in zip(self.weights, self.moments, strict=True)]
        widths = [np.sqrt(features @ np.linalg.solve(weight, features)) for weight in self.weights]
        return int((np.array(expected) + ALPHA * np.array(widths)).argmax())

    def learn(self, arm: int, features: FloatArray, reward: float) -> None:
        """Learn by ridge regression."""
        self.weights[arm] += np.outer(features, features)
        self.moments[arm] += reward * features
