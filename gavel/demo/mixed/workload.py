"""What shares the workers in the demo of mixed work: trainings, a session, and a service with a curve of requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.demo.elastic.workload import GLOBAL_BATCH, STEPS_PER_S

WORKERS, WORKERS_PER_CORE = 8, 4
RATE = 8.0  # requests per second that one replica answers
SERVICE_WEIGHT = 16.0  # of a replica, beside 1 of a training: it does not wait for its turn
HEADROOM = 0.2
REPLICAS_MAX = 4
DOWN_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """So many seconds in which the service is asked for so many requests per second."""

    lasts_s: float
    requests_per_s: float

    @property
    def replicas(self) -> int:
        """Return how many replicas that needs."""
        return min(REPLICAS_MAX, max(1, -int(-self.requests_per_s * (1 + HEADROOM) // RATE)))


CURVE = (
    Piece(lasts_s=25, requests_per_s=4),
    Piece(lasts_s=48, requests_per_s=24),
    Piece(lasts_s=50, requests_per_s=4),
)
"""A valley, a peak and a valley, each long enough for what follows from it: requests are counted over 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job that trains: how long it takes without interruption, and the seed of its data and parameters."""

    name: str
    length_s: float
    seed: int
    global_batch: int = GLOBAL_BATCH

    @property
    def steps(self) -> int:
        """Return its number of steps."""
        return round(self.length_s * STEPS_PER_S)


def trainings() -> tuple[Training, ...]:
    """Return six trainings of one worker each: more than there is room for at the peak, none over before its end."""
    names = ("waves", "digits", "maps", "birds", "cars", "stars")
    return tuple(Training(name=name, length_s=85, seed=seed) for seed, name in enumerate(names))


def piece_at(curve: Sequence[Piece], at_s: float) -> int | None:
    """Return which piece of the curve goes on after so many seconds; None after its end."""
    for number, piece in enumerate(curve):
        if at_s < piece.lasts_s:
            return number
        at_s -= piece.lasts_s
    return None


def sent_at_s(curve: Sequence[Piece], number: int) -> float | None:
    """Return when request `number` of the curve, from 0, is sent: evenly spread in each piece; None after its end."""
    from_s, left = 0.0, float(number)
    for piece in curve:
        if left < piece.lasts_s * piece.requests_per_s:
            return from_s + left / piece.requests_per_s
        left -= piece.lasts_s * piece.requests_per_s
        from_s += piece.lasts_s
    return None
