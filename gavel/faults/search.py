"""Runs many seeds, on as many processes as wanted, and reports those that fail."""

import gc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import structlog

from gavel.faults.drawing import draw
from gavel.faults.world import run

CHUNK = 10  # seeds that a process takes at a time
COLLECTED_EVERY = 10_000  # objects: most of a seed's live for the whole seed, so that looking for garbage finds little


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """The outcome of one seed; `violation` is empty if everything held."""

    seed: int
    digest: str
    events: int
    violation: str = ""
    invariant: str = ""


def run_seed(seed: int) -> SeedResult:
    """Return the outcome of a seed."""
    with silenced():
        outcome = run(draw(seed))
    violation = outcome.violation
    return SeedResult(
        seed=seed,
        digest=outcome.digest,
        events=outcome.events,
        violation=str(violation) if violation else "",
        invariant=violation.name if violation else "",
    )


def run_seeds(first: int, last: int, processes: int) -> Iterator[SeedResult]:
    """Yield the outcomes of the seeds from `first` up to, without, `last`, in order."""
    if processes == 1:
        yield from map(run_seed, range(first, last))
        return
    with ProcessPoolExecutor(processes, initializer=_collect_seldom) as pool:
        yield from pool.map(run_seed, range(first, last), chunksize=CHUNK)


def _collect_seldom() -> None:
    """Look for garbage seldom, and never among what was there before: a tenth of the time of a seed."""
    gc.freeze()
    gc.set_threshold(COLLECTED_EVERY, 20, 2)


class silenced:
    """Drops what the service logs while the block lasts: thousands of lines about faults that were asked for."""

    def __enter__(self) -> None:
        self._before = structlog.get_config()
        structlog.configure(processors=[_drop], cache_logger_on_first_use=False)

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)


def _drop(*_: object) -> str:
    raise structlog.DropEvent
