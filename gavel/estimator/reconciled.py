"""The estimator of the service: every source of knowledge of a throughput, reconciled in log space.

What was measured of a (job kind, scale factor, accelerator type) stands (evidence.py): ten times as precise as anything
else, the precision-weighted combination is the measurement. Where nothing was, completion and scaling (beliefs.py) and
what the user states (statements.py) are combined by their precisions; a statement that contradicts what is known loses
weight, and so does a user whose statements proved wrong.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from gavel.estimator import statements
from gavel.estimator.beliefs import Belief, Beliefs, believe
from gavel.estimator.evidence import (
    KNOWN_REPORTS,
    MEMORY_REPORTS,
    REPORT_ERROR,
    SHORTEST_S,
    STATERS_MAX,
    Evidence,
    first,
    on_grid,
    updated,
)
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, FloatArray, JobId, JobSpec, Measurement

Key = tuple[str, int, AcceleratorType]
SideKey = tuple[str, int, AcceleratorType, str, str]  # with partner ("": none) and placement

_AnyKey = TypeVar("_AnyKey")

JOBS_REMEMBERED = 20_000  # whose newest report is known, to tell a repeated one
ANSWERS_MAX = 50_000
AGREEMENT = 0.1  # of log(steps/s), between a statement and everything else
COMPLETED_ERROR = 0.1  # of log(steps/s), below which a round is better spent than on measuring
SURPRISE = 2.0  # deviations beyond which a statement is no error of the usual kind
TRUST = 0.5  # error of log(steps/s) up to which a user is taken at the word, until something is measured


@dataclass(slots=True)
class _Memory:
    """What follows from the published rates, worked out when first asked for; shared while those stay the same."""

    beliefs: Beliefs | None = None
    reputations: Mapping[str, statements.Reputation] | None = None
    predicted: dict[object, tuple[ThroughputEstimate, ...]] = field(default_factory=dict)
    rows: dict[Key, tuple[Evidence, ThroughputEstimate]] = field(default_factory=dict)  # outlives a version


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledThroughputs:
    """Implements ThroughputEstimator; immutable. `version` grows whenever a rate that `estimate` gives may have moved.

    `rates` holds gangs alone and consolidated, `side_rates` those beside a partner or spread over nodes. `references`
    are kinds measured elsewhere: they count as evidence on relative speeds and are no part of the table.
    """

    rates: Mapping[Key, Evidence] = field(default_factory=dict)
    side_rates: Mapping[SideKey, Evidence] = field(default_factory=dict)
    references: Mapping[Key, Evidence] = field(default_factory=dict)
    seen: Mapping[JobId, tuple[int, int]] = field(default_factory=dict)
    core_sharing: int = 1  # workers on a core: what an idle sibling flatters a rate by
    version: int = 0
    _memory: _Memory = field(default_factory=_Memory, compare=False, repr=False)

    @classmethod
    def from_table(
        cls,
        table: Iterable[ThroughputEstimate],
        *,
        core_sharing: int = 1,
        references: Iterable[ThroughputEstimate] = (),
    ) -> "ReconciledThroughputs":
        """The estimator that had this table, after a restart."""
        rows = [row for row in table if row.measurements > 0]
        return cls(
            rates={_key(row): _evidence(row) for row in rows if not _is_aside(row)},
            side_rates={_side_key(row): _evidence(row) for row in rows if _is_aside(row)},
            references={_key(row): _foreign(row) for row in references},
            core_sharing=core_sharing,
        )

    # --- learning -----------------------------------------------------------------------------------------------

    def learn(self, measurements: Sequence[Measurement]) -> "ReconciledThroughputs":
        """A new estimator that also knows these; repeated, stale, too short or impossible ones move no estimate."""
        rates, side_rates, seen = dict(self.rates), dict(self.side_rates), dict(self.seen)
        is_news = False
        for each in measurements:
            if (each.token, each.sequence) <= seen.get(each.job_id, (0, 0)):
                continue
            seen.pop(each.job_id, None)  # put last: the jobs heard of longest ago are forgotten first
            seen[each.job_id] = (each.token, each.sequence)
            if each.seconds < SHORTEST_S or each.steps <= 0:
                continue
            if each.partner is None and each.placement == "consolidated":
                key = each.kind, each.scale_factor, each.accelerator_type
                is_news |= self._take(rates, key, each)
            else:
                side = each.kind, each.scale_factor, each.accelerator_type, each.partner or "", each.placement
                is_news |= self._take(side_rates, side, each)
        if len(seen) > 1.25 * JOBS_REMEMBERED:
            seen = dict(list(seen.items())[-JOBS_REMEMBERED:])
        learned = replace(self, rates=rates, side_rates=side_rates, seen=seen)
        return (
            replace(learned, version=self.version + 1, _memory=_Memory(rows=self._memory.rows)) if is_news else learned
        )

    def _take(self, rates: "dict[_AnyKey, Evidence]", key: "_AnyKey", each: Measurement) -> bool:
        """Put one measurement in its place; True if what follows from the rates may change."""
        old = rates.get(key)
        flattered = 1 if each.is_representative else self.core_sharing
        log_rate = math.log(each.steps / each.seconds / flattered)
        # A guess from an idle sibling's time never mixes with rates measured at full load: the better fact wins.
        if old is not None and old.is_representative and not each.is_representative:
            return False
        if old is None or each.is_representative != old.is_representative:
            new = first(log_rate, each.seconds, is_representative=each.is_representative)
            new = replace(new, stated_by=old.stated_by) if old else new
        else:
            new = updated(old, log_rate, each.seconds)
        new = _with_statement(new, each)
        rates[key] = new
        if old is None or new.stated_by != old.stated_by or new.is_representative != old.is_representative:
            return True
        return new.published != old.published or (old.count < KNOWN_REPORTS <= new.count)

    # --- answering ----------------------------------------------------------------------------------------------

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """One estimate for each of `types`, in order; finite and positive."""
        found = [self._measured((spec.kind, spec.scale_factor, name)) for name in types]
        if all(found):
            return tuple(each for each in found if each)
        question = (spec.kind, spec.scale_factor, spec.user, tuple(spec.throughput_steps_per_s.items()), tuple(types))
        predicted = self._memory.predicted
        if question not in predicted:
            if len(predicted) >= ANSWERS_MAX:
                predicted.clear()
            predicted[question] = self._predicted(spec, types)
        return tuple(each or guess for each, guess in zip(found, predicted[question], strict=True))

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything measured so far, sorted by kind, scale factor, type, partner and placement."""
        alone = [self._row_of(key, rate) for key, rate in self.rates.items()]
        aside = [
            replace(_row(key[:3], rate), partner=key[3] or None, placement=key[4])
            for key, rate in self.side_rates.items()
        ]
        return tuple(sorted(alone + aside, key=_side_key))

    def reputations(self) -> Mapping[str, statements.Reputation]:
        """How good the statements of each user were, by name."""
        if self._memory.reputations is None:
            self._memory.reputations = statements.reputations(statements.statements(self.table()))
        return self._memory.reputations

    def _measured(self, key: Key) -> ThroughputEstimate | None:
        """What was measured at full load; None: nothing."""
        rate = self.rates.get(key)
        return self._row_of(key, rate) if rate is not None and rate.is_representative else None

    def _row_of(self, key: Key, rate: Evidence) -> ThroughputEstimate:
        rows = self._memory.rows
        if key not in rows or rows[key][0] is not rate:
            rows[key] = rate, _row(key, rate)
        return rows[key][1]

    def _predicted(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """What to believe of types that nobody measured this kind on at full load, at this size."""
        stated = {name: rate for name, rate in spec.throughput_steps_per_s.items() if statements.usable(rate)}
        beliefs = self._beliefs(types)
        belief = beliefs.of(spec.kind, spec.scale_factor)
        mean, covariance = belief.mean, belief.covariance
        trust = statements.trust_in(spec.user, self.reputations()) if stated else 0.0
        if stated:
            mean, covariance = _with_statements(belief, beliefs.types, stated, trust)
        columns = [beliefs.types.index(name) for name in types]
        rates = on_grid(mean[columns])
        errors = np.sqrt(np.maximum(covariance[columns, columns], 0.0))
        found = []
        for name, rate, error in zip(types, rates.tolist(), errors.tolist(), strict=True):
            known = self.rates.get((spec.kind, spec.scale_factor, name))
            is_as_stated = name in stated and trust <= TRUST and _agrees(belief, stated[name], rate)
            found.append(
                ThroughputEstimate(
                    kind=spec.kind,
                    scale_factor=spec.scale_factor,
                    accelerator_type=name,
                    steps_per_s=stated[name] if is_as_stated else rate,
                    relative_error=error,
                    source=_source(belief, name in stated and known is None, bool(stated), error),
                    measurements=known.count if known else 0,
                )
            )
        return tuple(found)

    def _beliefs(self, types: Sequence[AcceleratorType]) -> Beliefs:
        known = self._memory.beliefs
        if known is None or not set(types) <= set(known.types):
            rates = {**self.references, **self.rates}
            asked = {*types, *(known.types if known else ())}
            known = self._memory.beliefs = believe(rates, sorted(asked))
        return known


def _agrees(belief: Belief, stated: float, rate: float) -> bool:
    """True if nothing that is known speaks against the statement: it stands as it is, and does not creep."""
    return not belief.is_level_known or abs(math.log(stated / rate)) <= AGREEMENT


def _source(belief: Belief, is_stated: bool, is_any_stated: bool, error: float) -> str:
    """What an estimate rests on; `completed` is as good as measured, `inferred` is worth a measurement."""
    if is_stated:
        return "stated"
    if belief.is_level_known and error <= COMPLETED_ERROR:
        return "completed"
    return "inferred" if belief.has_relatives or is_any_stated else "unknown"


def _with_statements(
    belief: Belief, types: Sequence[AcceleratorType], stated: Mapping[AcceleratorType, float], error: float
) -> tuple[FloatArray, FloatArray]:
    """The Gaussian given what a user states (Kalman's update); the more surprising, the less it weighs."""
    columns = [types.index(name) for name in stated if name in types]
    covariance = belief.covariance if belief.is_level_known else belief.covariance + 100.0  # any unit of work
    if not columns:
        return belief.mean, covariance
    gap = np.array([math.log(stated[types[column]]) for column in columns]) - belief.mean[columns]
    noise = statements.covariance(error, len(columns))
    expected = covariance[np.ix_(columns, columns)] + noise
    surprise = math.sqrt(float(gap @ np.linalg.solve(expected, gap)) / len(columns))
    expected += noise * (max(1.0, surprise / SURPRISE) ** 2 - 1)
    gain = np.linalg.solve(expected, covariance[columns]).T
    return belief.mean + gain @ gap, covariance - gain @ covariance[columns]


def _with_statement(evidence: Evidence, each: Measurement) -> Evidence:
    """Remembers what the user said, the newest of a bounded number of users."""
    stated = each.stated_steps_per_s
    if stated is None or not statements.usable(stated) or evidence.stated_by.get(each.user) == stated:
        return evidence
    others = [(user, rate) for user, rate in evidence.stated_by.items() if user != each.user]
    return replace(evidence, stated_by=dict([*others, (each.user, stated)][-STATERS_MAX:]))


def _is_aside(row: ThroughputEstimate) -> bool:
    return row.partner is not None or row.placement != "consolidated"


def _key(row: ThroughputEstimate) -> Key:
    return row.kind, row.scale_factor, row.accelerator_type


def _side_key(row: ThroughputEstimate) -> SideKey:
    return row.kind, row.scale_factor, row.accelerator_type, row.partner or "", row.placement


def _evidence(row: ThroughputEstimate) -> Evidence:
    return Evidence(
        log_rate=math.log(row.steps_per_s),
        weight=min(float(row.measurements), MEMORY_REPORTS / 2),
        variance=REPORT_ERROR**2,
        count=row.measurements,
        published=row.steps_per_s,
        is_representative=row.is_measured,
        stated_by=row.stated_by,
        refused=row.refused,
    )


def _foreign(row: ThroughputEstimate) -> Evidence:
    """What another machine measured is one report with the error that it is given with."""
    return replace(_evidence(row), weight=1.0, variance=row.relative_error**2)


def _row(key: Key, rate: Evidence) -> ThroughputEstimate:
    return ThroughputEstimate(
        kind=key[0],
        scale_factor=key[1],
        accelerator_type=key[2],
        steps_per_s=rate.published,
        relative_error=rate.error,
        source="measured" if rate.is_representative else "inferred",
        measurements=rate.count,
        stated_by=rate.stated_by,
        refused=rate.refused,
    )
