"""The random states of a process that trains with PyTorch: Python's, NumPy's if it is used, torch's, the device's."""

import random
import sys
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import torch


def draw_as_for(seed: int, number: int) -> None:
    """Let what is drawn from now on, by Python, NumPy, torch or the device, follow from these two numbers alone."""
    digest = blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    key = int.from_bytes(digest, "little")
    random.seed(key)
    torch.manual_seed(key)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(key % 2**32)


class Randomness:
    """All random states, with those of further generators that belong to the loader."""

    def __init__(self, generators: Sequence[torch.Generator] = ()) -> None:
        self._generators = generators

    def state(self) -> dict[str, Any]:
        """Return the states as they are now."""
        states: dict[str, Any] = {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
            "generators": [each.get_state() for each in self._generators],
        }
        if "numpy" in sys.modules:
            algorithm, keys, *rest = sys.modules["numpy"].random.get_state()
            states["numpy"] = [algorithm, keys.tolist(), *rest]  # plain values: torch.load takes them as safe
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def restore(self, states: dict[str, Any]) -> None:
        """Set the states. That of a device is left out where there is none: the job may have moved."""
        random.setstate(states["python"])
        torch.set_rng_state(states["torch"])
        for generator, state in zip(self._generators, states["generators"], strict=False):
            generator.set_state(state)
        if "numpy" in states and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(tuple(states["numpy"]))
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])
