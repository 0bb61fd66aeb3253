"""Throughput as measured and no more, the simplest estimator there is: a running mean of log(steps/s) for each key.

The service uses reconciled.py; this one is what it is compared with.

What nobody has measured is what the user states, else inferred from the kind's other types, else one step per second on
every type, which makes policies treat the types alike until a first round has measured them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gavel.estimator.statements import usable
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, JobId, JobSpec, Measurement

Key = tuple[str, int, AcceleratorType]

MEMORY_S = 60.0  # seconds of training after which older measurements have faded to 1/e
SHORTEST_S = 0.05  # a shorter window says more of the clock than of the job
GRID = math.log(1.01)  # rates given to policies lie on a 1 % grid, so that equal jobs stay equal
JOBS_REMEMBERED = 20_000  # whose newest report is known, to tell a repeated one
PRIOR_ERROR = 1.0  # of log(steps/s), when nothing is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What has been measured of one key. `log_rate` is the weighted mean, `weight_s` the seconds behind it.

    `published` is the rate given to policies: it moves only when the mean has left its step of the grid.
    """

    log_rate: float
    weight_s: float
    spread: float
    count: int
    is_representative: bool
    published: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedThroughputs:
    """Implements ThroughputEstimator; immutable. `seen` is the newest (token, sequence) learned from each job."""

    rates: Mapping[Key, Rate] = field(default_factory=dict)
    seen: Mapping[JobId, tuple[int, int]] = field(default_factory=dict)
    core_sharing: int = 1  # workers on a core: what an idle sibling flatters a rate by

    @classmethod
    def from_table(cls, table: Iterable[ThroughputEstimate], *, core_sharing: int = 1) -> "ObservedThroughputs":
        """The estimator that had this table, after a restart."""
        rates = {
            (row.kind, row.scale_factor, row.accelerator_type): Rate(
                log_rate=math.log(row.steps_per_s),
                weight_s=MEMORY_S / 2,
                spread=row.relative_error,
                count=row.measurements,
                is_representative=row.is_measured,
                published=row.steps_per_s,
            )
            for row in table
            if row.measurements > 0
        }
        return cls(rates=rates, core_sharing=core_sharing)

    def learn(self, measurements: Sequence[Measurement]) -> "ObservedThroughputs":
        """A new estimator that also knows these; repeated, stale or too short ones change nothing."""
        rates, seen = dict(self.rates), dict(self.seen)
        for each in measurements:
            if (each.token, each.sequence) <= seen.get(each.job_id, (0, 0)):
                continue
            seen.pop(each.job_id, None)  # put last: the jobs heard of longest ago are forgotten first
            seen[each.job_id] = (each.token, each.sequence)
            if each.seconds >= SHORTEST_S and each.steps > 0:
                key = (each.kind, each.scale_factor, each.accelerator_type)
                rates[key] = _update(rates.get(key), each, self.core_sharing)
        newest = dict(list(seen.items())[-JOBS_REMEMBERED:])
        return replace(self, rates=rates, seen=newest)

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """One estimate for each of `types`, in order; finite and positive."""
        return tuple(self._estimate(spec, name) for name in types)

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything measured so far, sorted by kind, scale factor and type."""
        return tuple(_row(key, rate) for key, rate in sorted(self.rates.items()))

    def _estimate(self, spec: JobSpec, accelerator_type: AcceleratorType) -> ThroughputEstimate:
        key = (spec.kind, spec.scale_factor, accelerator_type)
        if key in self.rates:
            return _row(key, self.rates[key])
        stated = {name: rate for name, rate in spec.throughput_steps_per_s.items() if usable(rate)}
        if accelerator_type in stated:
            return _unmeasured(key, stated[accelerator_type], "stated", 0.3)
        others = [rate.published for (k, s, _), rate in self.rates.items() if (k, s) == key[:2]]
        others += list(stated.values())
        if others:
            return _unmeasured(key, math.exp(sum(map(math.log, others)) / len(others)), "inferred", PRIOR_ERROR)
        return _unmeasured(key, 1.0, "unknown", PRIOR_ERROR)


def _update(old: Rate | None, each: Measurement, core_sharing: int) -> Rate:
    flattered = 1 if each.is_representative else core_sharing
    log_rate = math.log(each.steps / each.seconds / flattered)
    # A guess from an idle sibling's time never mixes with rates measured at full load: the better kind of fact wins.
    if old is None or (each.is_representative and not old.is_representative):
        return Rate(
            log_rate=log_rate,
            weight_s=each.seconds,
            spread=0.2,
            count=1,
            is_representative=each.is_representative,
            published=_on_grid(log_rate),
        )
    if old.is_representative and not each.is_representative:
        return old
    kept = old.weight_s * math.exp(-each.seconds / MEMORY_S)
    share = each.seconds / (kept + each.seconds)
    mean = old.log_rate + share * (log_rate - old.log_rate)
    spread = math.sqrt((1 - share) * old.spread**2 + share * (log_rate - mean) ** 2)
    left_step = abs(mean - math.log(old.published)) > GRID
    return replace(
        old,
        log_rate=mean,
        weight_s=kept + each.seconds,
        spread=spread,
        count=old.count + 1,
        published=_on_grid(mean) if left_step else old.published,
    )


def _on_grid(log_rate: float) -> float:
    return math.exp(round(log_rate / GRID) * GRID)


def _row(key: Key, rate: Rate) -> ThroughputEstimate:
    return ThroughputEstimate(
        kind=key[0],
        scale_factor=key[1],
        accelerator_type=key[2],
        steps_per_s=rate.published,
        relative_error=rate.spread,
        source="measured" if rate.is_representative else "inferred",
        measurements=rate.count,
    )


def _unmeasured(key: Key, steps_per_s: float, source: str, error: float) -> ThroughputEstimate:
    return ThroughputEstimate(
        kind=key[0],
        scale_factor=key[1],
        accelerator_type=key[2],
        steps_per_s=steps_per_s,
        relative_error=error,
        source=source,
    )
