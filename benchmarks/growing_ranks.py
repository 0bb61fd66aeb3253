"""A rank that trains a model of PyTorch, for `benchmarks.growing`: it does what it is told by lines, and answers each.

It runs in the environment of `make frameworks-env`, on the host's CPU, and is no part of a gang of Gavel.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as a warm start does: the first optimizer would load it
import torch.distributed as dist

WIDTH = 1024  # of a layer: a million parameters each


class Rank:
    """A model, its optimizer, and the process group that the rank is in."""

    model: Any
    optimizer: Any

    def build(self, layers: int) -> None:
        """Make the model and its optimizer."""
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def join(self, store: str, rank: int, size: int) -> None:
        """Leave the group, if there is one, and meet the others in a new one."""
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)

    def step(self) -> None:
        """Train one step of a few samples, with the gradients of all ranks."""
        loss = self.model(torch.ones(4, WIDTH)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for each in self.model.parameters():
            dist.all_reduce(each.grad)
        self.optimizer.step()

    def save(self, file: str) -> None:
        """Write a checkpoint that outlasts a loss of power."""
        with Path(file).open("wb") as target:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, target)
            target.flush()
            os.fsync(target.fileno())

    def load(self, file: str) -> None:
        """Read a checkpoint."""
        kept = torch.load(file, weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])

    def take(self) -> None:
        """Take parameters and the optimizer's state from rank 0; every rank calls it."""
        if not self.optimizer.state:
            for each in self.model.parameters():
                each.grad = torch.zeros_like(each)
            self.optimizer.step()
        for each in self.model.parameters():
            dist.broadcast(each.data, 0)
            for value in self.optimizer.state[each].values():
                dist.broadcast(value, 0)


def main() -> None:
    """Do what each line says, until there is none."""
    torch.set_num_threads(1)
    rank = Rank()
    print("ready", flush=True)
    for line in sys.stdin:
        for name, arguments in json.loads(line):
            getattr(rank, name)(*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()
