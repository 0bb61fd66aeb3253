"""A loader of batches that can continue in the middle of an epoch, with the random states of that moment."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from gavel_runtime._randomness import Randomness


class ResumableLoader:
    """Wraps a DataLoader, or any sized iterable of batches, whose order depends on nothing but random states.

    `position` is the number of batches handed out in this epoch. After `load_state_dict` the next epoch begins where
    the state was taken: batches before it are left out, and the random states are those of then. Where batches are
    made in this process only their indices are drawn again; with worker processes the batches are made again, because
    the random states of the workers depend on them. A loader with a state of its own (torchdata) keeps it.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.position = 0
        self._random = Randomness(_generators(loader))
        self._began: dict[str, Any] | None = None
        self._resumed: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def begins_at(self) -> int:
        """How many batches the next epoch leaves out."""
        return 0 if self._resumed is None else int(self._resumed["position"])

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the random states at the beginning of the epoch and now.

        Between two epochs it is the beginning of the next one.
        """
        if self.position == len(self):
            return {"position": 0, "began": None, "now": self._random.state()}
        state = {"position": self.position, "began": self._began, "now": self._random.state()}
        return state | ({"loader": self.loader.state_dict()} if _has_state(self.loader) else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next epoch begin where `state` was taken."""
        self._resumed = state

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed["began"] is None:
            self._random.restore(resumed["now"])
            resumed = None
        if resumed is None:
            self.position, self._began = 0, self._random.state()
            return self._hand_out(iter(self.loader))
        self.position, self._began = resumed["position"], resumed["began"]
        self._random.restore(resumed["began"])
        batches = self._continued(resumed)
        self._random.restore(resumed["now"])
        return self._hand_out(batches)

    def _hand_out(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.position += 1
            yield batch

    def _continued(self, resumed: dict[str, Any]) -> Iterator[Any]:
        """Return the batches of the epoch from the position on."""
        if "loader" in resumed:
            self.loader.load_state_dict(resumed["loader"])
            rest: Iterator[Any] = iter(self.loader)
            return rest
        if type(self.loader) is DataLoader and self.loader.num_workers == 0 and self.loader.batch_sampler is not None:
            return _after(self.loader, self.position)
        batches: Iterator[Any] = iter(self.loader)
        for _ in range(self.position):
            next(batches)
        return batches


def _after(loader: "DataLoader[Any]", position: int) -> Iterator[Any]:
    """Return the batches after the first ones, of which only the indices are drawn."""
    indices = _Indices(loader.batch_sampler)
    copy: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=indices,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        generator=loader.generator,
    )
    batches = iter(copy)  # draws its own seed first, as the loader did
    for _ in range(position):
        next(indices.iterator)
    return iter(batches)


class _Indices:
    """A batch sampler whose iterator can be moved on."""

    def __init__(self, batch_sampler: Any) -> None:
        self._batch_sampler = batch_sampler
        self.iterator: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self.iterator = iter(self._batch_sampler)
        return self.iterator

    def __len__(self) -> int:
        return len(self._batch_sampler)


def _generators(loader: Any) -> list[Any]:
    """Return the random generators of the loader and its sampler, each once."""
    owners = (loader, getattr(loader, "sampler", None))
    generators = [getattr(owner, "generator", None) for owner in owners]
    return [each for index, each in enumerate(generators) if each is not None and each not in generators[:index]]


def _has_state(loader: Any) -> bool:
    """Return whether the loader keeps its own position. That of Accelerate only passes the question on."""
    is_passed_on = type(loader).__module__.startswith("accelerate.")
    return not is_passed_on and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
