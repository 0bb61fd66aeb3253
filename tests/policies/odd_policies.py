"""Policies that misbehave, for the runner's tests: it imports `load` in its subprocess."""

import os
import threading
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from gavel.policies import registry
from gavel.ports import Policy
from gavel.types import AllocationProblem


@dataclass(frozen=True)
class Odd:
    """Does what its name says instead of allocating."""

    name: str

    def allocate(self, problem: AllocationProblem) -> NoReturn:
        match self.name:
            case "hang":
                threading.Event().wait()
            case "crash":
                os.abort()
            case "swallow_memory":
                np.ones(1 << 32)
        raise ZeroDivisionError("odd")


def load(spec: str) -> Policy:
    """An odd policy by its name; every other name as the registry does."""
    return Odd(spec) if spec in ("hang", "crash", "swallow_memory", "raise") else registry.load(spec)


def load_nothing(spec: str) -> Policy:
    """Not importable by its name: the subprocess ends before it is ready."""
    raise AssertionError


load_nothing.__qualname__ = "there_is_no_such_name"
