"""Batches of an elastic PyTorch training: the same samples and the same random numbers at every size of its gang."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import default_collate

from gavel_runtime._job import job
from gavel_runtime._randomness import draw_as_for
from gavel_runtime._samples import MicroBatch, copy_of, micro_batches


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank takes at once of a global batch: the collated samples, and `weight`, their part of the batch."""

    batch: Any
    weight: float


class GlobalBatches:
    """Epochs of global batches; each one that is handed out is the parts of it that this rank takes.

    `global_batch` samples are a step, inside Gavel as many as the submission says; a rank takes them in parts of at
    most `at_most`, which are made and trained on one after another. Each epoch has its own order of the data set, made
    of `seed`, without the samples that fill no whole batch. What the data set draws at random for a sample, and the
    model for a part, is seeded by the number of the sample. So the parameters are the same at every size, but for the
    order of sums, if `at_most` divides what a rank takes at each of the sizes; else dropout draws other masks.

    So many consecutive ranks as `model_parallel_size` says hold one copy of the model together, and take the same
    samples (tensor or pipeline parallelism). Raises ValueError where no number of samples is known, there are fewer in
    the data set, or the ranks are no whole number of copies.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        global_batch: int | None = None,
        at_most: int | None = None,
        seed: int = 0,
        model_parallel_size: int = 1,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        batch = job.global_batch or global_batch
        if not batch or batch > len(dataset):
            raise ValueError(f"global_batch: {batch} samples of a data set of {len(dataset)}; say how many a step has")
        self._dataset, self._batch, self._at_most = dataset, batch, at_most
        self._copy, self._copies = copy_of(job.rank, job.world_size, model_parallel_size)
        self._seed, self._collate = seed, collate
        self.position = 0
        self._epoch = -1
        self._resumed: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._dataset) // self._batch

    @property
    def begins_at(self) -> int:
        """How many batches the next epoch leaves out."""
        return 0 if self._resumed is None else self._resumed["position"] % len(self)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, and how many of its batches were handed out: the same in every rank."""
        return {"epoch": self._epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next epoch begin where `state` was taken."""
        self._resumed = state

    def __iter__(self) -> Iterator[Iterator[Part]]:
        resumed, self._resumed = self._resumed, None
        self._epoch, self.position = self._begin(resumed)
        return self._batches(self._order())

    def _begin(self, resumed: dict[str, int] | None) -> tuple[int, int]:
        if resumed is None:
            return self._epoch + 1, 0
        if resumed["position"] == len(self):
            return resumed["epoch"] + 1, 0
        return resumed["epoch"], resumed["position"]

    def _order(self) -> list[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        order: list[int] = torch.randperm(len(self._dataset), generator=generator).tolist()
        return order

    def _batches(self, order: list[int]) -> Iterator[Iterator[Part]]:
        while self.position < len(self):
            step = self._epoch * len(self) + self.position
            self.position += 1
            yield self._parts(step, order)

    def _parts(self, step: int, order: list[int]) -> Iterator[Part]:
        first = self._epoch * len(self) * self._batch
        copy, copies = self._copy, self._copies
        for part in micro_batches(step * self._batch, self._batch, rank=copy, world_size=copies, at_most=self._at_most):
            batch = self._collate([self._sample(number, order[number - first]) for number in part.samples])
            draw_as_for(self._seed, self._key(part))
            yield Part(batch, part.weight)

    def _sample(self, number: int, index: int) -> Any:
        draw_as_for(self._seed, number)
        return self._dataset[index]

    def _key(self, part: MicroBatch) -> int:
        return -1 - part.samples.start  # not that with which its first sample was made


def sum_gradients(model: torch.nn.Module) -> None:
    """Sum the gradients of a model over the ranks, all at once; each has added up those of its parts, by their weights.

    Needs `torch.distributed` in a gang of several ranks.
    """
    if job.world_size == 1:
        return
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    whole = torch.cat([each.flatten() for each in gradients])
    torch.distributed.all_reduce(whole)
    for gradient, summed in zip(gradients, whole.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))
