"""The estimated rates of every kind on every type and at every gang size, as Gaussians over log(steps/s).

1. Sizes: rates of each kind at several gang sizes weigh the hypotheses of the communication model (scaling.py).
2. Every rate is converted to the kind's own size, the gang size at which it was measured most often. The conversion
   adds its own variance.
3. Types: completion over kinds and types (kinds.py) gives each kind's mean and covariance at that size.
4. The communication model converts that to any other size.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from gavel.estimator import scaling
from gavel.estimator.evidence import Evidence, column, errors, on_grid
from gavel.estimator.hardware import log_peak
from gavel.estimator.kinds import OWN_KIND, RELATIVES_MAX, Population, completed, family_of, population
from gavel.types import AcceleratorType, BoolArray, FloatArray, IntArray
from gavel.types.elastic_kinds import divides_its_batch

Rates = Mapping[tuple[str, int, AcceleratorType], Evidence]

COMPLETED_ERROR = 0.1  # of log(steps/s), below which measuring is not worth a round
LEAST_ERROR = 1e-3  # of log(steps/s) of what was not measured itself
ERROR_GRID = 0.05  # grid of the logarithm of an error, so that small changes leave it equal
LEVEL_ERROR = 1.0  # of a kind's level when only its relatives are known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Belief:
    """A Gaussian of log(steps/s) over the types. `is_level_known`: the kind itself was measured on some type."""

    mean: FloatArray  # (m,)
    covariance: FloatArray  # (m, m)
    is_level_known: bool
    has_relatives: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs:
    """The estimates of all kinds measured so far; rows of the arrays are `kinds`, columns `types`."""

    kinds: tuple[str, ...]
    types: tuple[AcceleratorType, ...]
    log_rate: FloatArray  # (K, m) at the kind's own size, NaN where not measured
    variance: FloatArray  # (K, m)
    own_size: IntArray  # (K,)
    is_apart: BoolArray  # (K,), True: the kind's level is not used for its relatives
    weights: FloatArray  # (K, H) of the hypotheses on scaling
    believed: Population
    mean: FloatArray  # (K, m)
    covariance: FloatArray  # (K, m, m)
    used_types: frozenset[AcceleratorType]  # types on which some kind was measured
    row_of: Mapping[str, int]
    family: Mapping[str, tuple[int, ...]]
    gains: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)  # by gang size, computed on first use
    rates: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)  # the same

    def of(self, kind: str, size: int) -> Belief:
        """Return the estimate of a kind at a gang size, on all types; also of a kind that was never measured."""
        row = self.row_of.get(kind)
        if row is None:
            return self._of_stranger(kind)
        change, variance = self._gains(size)
        # Scaling depends on the kind more than on the type: one error of scaling is common to all types.
        return Belief(
            mean=self.mean[row] + change[row],
            covariance=self.covariance[row] + variance[row],
            is_level_known=True,
            has_relatives=True,
        )

    def of_all(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Return the steps/s of all kinds at a gang size, and the errors of their logarithm, (K, m) each, on grids."""
        if size not in self.rates:
            change, variance = self._gains(size)
            own = np.einsum("ktt->kt", self.covariance)
            error = np.sqrt(np.maximum(own + variance[:, None], LEAST_ERROR**2))
            rounded = np.exp(np.round(np.log(error) / ERROR_GRID) * ERROR_GRID)
            self.rates[size] = on_grid(self.mean + change[:, None]), rounded
        return self.rates[size]

    def _gains(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of log(rate(size) / rate(own size)) of every kind, (K,) each; computed once."""
        if size not in self.gains:
            change, variance = np.empty(len(self.kinds)), np.empty(len(self.kinds))
            for own in np.unique(self.own_size):
                rows = self.own_size == own
                means, variances = scaling.gain(self.weights[rows], int(own), np.array([size]))
                change[rows], variance[rows] = means[:, 0], variances[:, 0]
            self.gains[size] = change, variance
        return self.gains[size]

    def _of_stranger(self, kind: str) -> Belief:
        relatives = list(self.family.get(family_of(kind), ())[: RELATIVES_MAX - 1])
        unknown = np.full((1, len(self.types)), np.nan)
        rates = np.vstack([self.log_rate[relatives], unknown])
        names = [*(self.kinds[row] for row in relatives), kind]
        noise = np.vstack([self.variance[relatives], unknown])
        is_apart = np.append(self.is_apart[relatives], False)
        means, covariances = completed(self.believed, rates, noise, names, is_apart)
        level = float(np.mean(self.mean[relatives])) if relatives else 0.0
        centred = np.eye(len(self.types)) - 1 / len(self.types)
        return Belief(
            mean=means[-1] - means[-1].mean() + level,
            covariance=centred @ covariances[-1] @ centred + LEVEL_ERROR**2,
            is_level_known=False,
            has_relatives=bool(relatives),
        )


def believe(rates: Rates, types: Sequence[AcceleratorType]) -> Beliefs:
    """Return the estimates that follow from `rates`, on `types` and on all types in `rates`."""
    names = sorted({kind for kind, _, _ in rates})
    columns = sorted({*types, *(name for _, _, name in rates)})
    sizes = np.array(sorted({size for _, size, _ in rates} or {1}))
    log_rate, variance = _cube(rates, names, columns, sizes)
    is_divided = np.array([divides_its_batch(name) for name in names], dtype=bool)
    weights = scaling.weigh(log_rate, variance, sizes, is_divided)
    own = np.isfinite(log_rate).sum(axis=1).argmax(axis=1)
    at_own, noise = _at_own_size(log_rate, variance, weights, own, sizes)
    peaks = np.array([log_peak(name) for name in columns])
    believed = population(at_own, noise, peaks)
    family: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        family[family_of(name)].append(row)
    is_apart = _apart(names, own, family)
    mean, covariance = completed(believed, at_own, noise, names, is_apart)
    return Beliefs(
        kinds=tuple(names),
        types=tuple(columns),
        log_rate=at_own,
        variance=noise,
        own_size=sizes[own],
        is_apart=is_apart,
        weights=weights,
        believed=believed,
        mean=mean,
        covariance=covariance,
        used_types=frozenset(name for _, _, name in rates),
        row_of={name: row for row, name in enumerate(names)},
        family={name: tuple(rows) for name, rows in family.items()},
    )


def _apart(names: Sequence[str], own: IntArray, family: Mapping[str, Sequence[int]]) -> BoolArray:
    """Return (K,): True for kinds of one job, and for those whose own gang size is not the family's usual one."""
    family_at = np.empty(len(names), dtype=np.int64)
    for number, rows in enumerate(family.values()):
        family_at[rows] = number
    counts = np.zeros((len(family), 1 + max(own, default=0)), dtype=np.int64)
    np.add.at(counts, (family_at, own), 1)
    is_of_one_job = np.array([OWN_KIND in name for name in names], dtype=bool)
    is_apart: BoolArray = is_of_one_job | (own != counts.argmax(axis=1)[family_at])
    return is_apart


def _cube(
    rates: Rates, names: Sequence[str], columns: Sequence[AcceleratorType], sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return log(steps/s) and its variance, (K, m, S) each, NaN where not measured."""
    shape = len(names), len(columns), len(sizes)
    log_rate, variance = np.full(shape, np.nan), np.full(shape, np.nan)
    row, size, on_type = coordinates(rates, names, columns)
    cells = row, on_type, np.searchsorted(sizes, size)
    log_rate[cells] = np.log(column("published", rates.values()))
    variance[cells] = errors(rates.values()) ** 2
    return log_rate, variance


def coordinates(
    rates: Rates, kinds: Sequence[str], types: Sequence[AcceleratorType]
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the row of the kind, the gang size and the column of the type of each rate, (N,) each."""
    size = np.fromiter(map(itemgetter(1), rates), np.int64, len(rates))
    return places(map(itemgetter(0), rates), kinds), size, places(map(itemgetter(2), rates), types)


def places(values: Iterable[str], among: Sequence[str]) -> IntArray:
    """Return the index in `among` of each of `values`, (N,)."""
    place_of = {name: place for place, name in enumerate(among)}
    return np.fromiter(map(place_of.__getitem__, values), np.int64)


def _at_own_size(
    log_rate: FloatArray, variance: FloatArray, weights: FloatArray, own: IntArray, sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return log(steps/s) at each kind's own size and its variance, (K, m) each; sizes are weighted by precision."""
    change, scaling_variance = np.empty((len(own), len(sizes))), np.empty((len(own), len(sizes)))
    for depth, size in enumerate(sizes):
        of_size = own == depth
        change[of_size], scaling_variance[of_size] = scaling.gain(weights[of_size], int(size), sizes)
    precision = np.where(np.isfinite(log_rate), 1 / (variance + scaling_variance[:, None, :]), 0.0)
    total = precision.sum(axis=2)
    brought = np.where(np.isfinite(log_rate), log_rate - change[:, None, :], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (precision * brought).sum(axis=2) / total, np.where(total > 0, 1 / total, np.nan)
