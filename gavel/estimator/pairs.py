"""The rates of two jobs that share their workers, estimated from the pairs that were measured, of any kinds.

Rates are normalised: the rate colocated divided by the rate alone, in [0, 1]. The model is a Gaussian process over
(kind, partner, type, gang size). Its parts are how much a kind loses beside any partner, how much it slows any partner
down, and the rest, which belongs to the pair; similar kinds (similarity.py) have similar parts. Unlike colocation.py it
needs no kinds that were measured beside all others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.estimator.similarity import Posterior, posterior, similarity
from gavel.types import AcceleratorType, FloatArray, IntArray

Sized = tuple[str, int]  # a job kind at a scale factor

PRIOR_RATE = 0.6  # normalised rate of a pair before any measurement
COMMON, SUFFERS, PRESSES, OF_PAIR = 0.05, 0.03, 0.03, 0.03  # variances of the parts
ALIKE_TYPES = 0.6  # correlation between two types
GANG_LENGTH = 4.0  # in doublings of the gang size: how far a measurement at one size counts for others
FLOOR = 0.02  # error of a normalised rate that no measurement takes away
OBSERVED_MAX = 1_000  # pairs used, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSeen:
    """A measured pair: the rate of `kind` beside `partner`, over its rate alone."""

    kind: str
    partner: str
    scale_factor: int
    accelerator_type: AcceleratorType
    rate: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairEstimates:
    """`rate[t, a, b]`, in [0, 1], of kind a beside kind b divided by its rate alone, and its deviation, (m, n, n)."""

    kinds: tuple[Sized, ...]
    rate: FloatArray
    deviation: FloatArray

    def within(self, deviations: float) -> FloatArray:
        """Return the rates so many standard deviations above the mean, (m, n, n), in [0, 1]; below it if negative."""
        shifted: FloatArray = np.clip(self.rate + deviations * self.deviation, 0.0, 1.0)
        return shifted


def pair_estimates(
    kinds: Sequence[Sized],
    types: Sequence[AcceleratorType],
    seen: Sequence[PairSeen],
    log_rate: Mapping[Sized, FloatArray],
) -> PairEstimates:
    """Return the estimates of every pair of n kinds on m types.

    `log_rate` has the logarithms of the rates alone, of these kinds and all seen. Pairs of different scale factors
    share no workers; their estimates mean nothing.
    """
    seen = seen[-OBSERVED_MAX:]
    shape = len(types), len(kinds), len(kinds)
    prior_variance = COMMON + SUFFERS + PRESSES + OF_PAIR
    if not (seen and kinds and types):
        return PairEstimates(
            kinds=tuple(kinds), rate=np.full(shape, PRIOR_RATE), deviation=np.full(shape, prior_variance**0.5)
        )
    world = _World(kinds, types, seen, log_rate)
    rate, deviation = np.empty(shape), np.empty(shape)
    learned = world.posterior()
    for column in range(len(types)):
        for row in range(len(kinds)):
            mean, variance = learned.of(world.across(row, column), prior_variance)
            rate[column, row] = np.clip(PRIOR_RATE + mean, 0.0, 1.0)
            deviation[column, row] = np.sqrt(variance + FLOOR**2)
    return PairEstimates(kinds=tuple(kinds), rate=rate, deviation=deviation)


class _World:
    """The similarity of the kinds asked for and those measured in pairs, as rows of one matrix."""

    def __init__(
        self,
        kinds: Sequence[Sized],
        types: Sequence[AcceleratorType],
        seen: Sequence[PairSeen],
        log_rate: Mapping[Sized, FloatArray],
    ) -> None:
        members = [(each.kind, each.scale_factor) for each in seen]
        partners = [(each.partner, each.scale_factor) for each in seen]
        every = list(dict.fromkeys([*kinds, *members, *partners]))
        row_of = {kind: row for row, kind in enumerate(every)}
        self._asked = np.array([row_of[kind] for kind in kinds], dtype=np.int64)
        self._kind = np.array([row_of[each] for each in members], dtype=np.int64)
        self._partner = np.array([row_of[each] for each in partners], dtype=np.int64)
        columns = {name: column for column, name in enumerate(dict.fromkeys([*types, *_types(seen)]))}
        self._type = np.array([columns[each.accelerator_type] for each in seen], dtype=np.int64)
        self._type_of = [columns[name] for name in types]
        self._seen = seen
        self._alike = similarity([kind for kind, _ in every], np.array([log_rate[each] for each in every]))
        doublings = np.log2([size for _, size in every])
        self._near = np.exp(-np.abs(doublings[:, None] - doublings) / GANG_LENGTH)

    def posterior(self) -> Posterior:
        rates = np.array([each.rate for each in self._seen])
        noise = np.array([each.deviation for each in self._seen]) ** 2 + FLOOR**2
        return posterior(self._covariance(self._kind, self._partner, self._type), noise, rates - PRIOR_RATE)

    def across(self, row: int, column: int) -> FloatArray:
        """Return the covariance (n, N) of one kind's rates beside the n kinds with the N measured pairs."""
        kind = np.full(1, self._asked[row])
        return self._covariance(kind, self._asked, np.full(1, self._type_of[column]))

    def _covariance(self, kind: IntArray, partner: IntArray, on_type: IntArray) -> FloatArray:
        """Return the covariance (P, N) of P pairs, given by the rows of their members, with the measured ones."""
        suffers, presses = self._alike[kind][:, self._kind], self._alike[partner][:, self._partner]
        parts = COMMON + SUFFERS * suffers + PRESSES * presses + OF_PAIR * suffers * presses
        alike = np.where(on_type[:, None] == self._type, 1.0, ALIKE_TYPES)
        covariance: FloatArray = parts * alike * self._near[kind][:, self._kind]
        return covariance


def _types(seen: Sequence[PairSeen]) -> list[AcceleratorType]:
    return [each.accelerator_type for each in seen]
