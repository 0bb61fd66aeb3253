"""An actor and a critic in a grid world, in plain Python tables: no vector unit helps.

Advantage actor-critic (Sutton and Barto, Reinforcement Learning, 2018, section 13.5). Episodes have a fixed
length and start anew at the goal, so that a step costs the same at the end of the training as at its beginning.
"""

import math
import random
from typing import ClassVar

import numpy as np

from workloads.training.loop import Rows, Shapes, Vector, main

SIDE, ACTIONS, LENGTH, DISCOUNT = 6, 4, 40, 0.9
STATES = SIDE * SIDE
GOAL = STATES - 1
Table = list[list[float]]


class GridWorld:
    """A policy table (states, actions) and a value table (states,)."""

    shapes: ClassVar[Shapes] = {"policy": (STATES, ACTIONS), "value": (STATES,)}
    examples = 1 << 31
    learning_rate = 0.06

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """All zero: every action is as likely."""

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """The loss is the mean reward missed per move; each row seeds an episode."""
        policy, value = parameters["policy"].tolist(), parameters["value"].tolist()
        policy_gradient = [[0.0] * ACTIONS for _ in range(STATES)]
        value_gradient = [0.0] * STATES
        reward = sum(episode(int(row), policy, value, policy_gradient, value_gradient) for row in rows)
        gradients["policy"][:] = np.array(policy_gradient, dtype=np.float32) / np.float32(len(rows))
        gradients["value"][:] = np.array(value_gradient, dtype=np.float32) / np.float32(len(rows))
        return 1 - reward / (len(rows) * LENGTH)


def episode(seed: int, policy: Table, value: list[float], policy_gradient: Table, value_gradient: list[float]) -> float:
    """Return the reward of one episode, and add its gradients."""
    draw = random.Random(seed).random
    state, reward = 0, 0.0
    for _ in range(LENGTH):
        probability = softmax(policy[state])
        action = choose(probability, draw())
        following = move(state, action)
        gain = 1.0 if following == GOAL else 0.0
        surprise = gain + (0.0 if gain else DISCOUNT * value[following]) - value[state]
        value_gradient[state] -= surprise
        gradient = policy_gradient[state]
        for other in range(ACTIONS):
            gradient[other] -= surprise * ((other == action) - probability[other])
        reward += gain
        state = 0 if gain else following
    return reward


def softmax(scores: list[float]) -> list[float]:
    """Return the probabilities of the actions."""
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def choose(probability: list[float], draw: float) -> int:
    """Return the action that a draw from [0, 1) selects."""
    for action, each in enumerate(probability):
        draw -= each
        if draw < 0:
            return action
    return ACTIONS - 1


def move(state: int, action: int) -> int:
    """Return the state one field right, down, left or up; the same state if a wall is there."""
    row, column = divmod(state, SIDE)
    row = min(SIDE - 1, max(0, row + (0, 1, 0, -1)[action]))
    column = min(SIDE - 1, max(0, column + (1, 0, -1, 0)[action]))
    return row * SIDE + column


if __name__ == "__main__":
    main(GridWorld, batch_size=96)
