"""The estimator of the service: every source of knowledge of a throughput, reconciled in log space.

What was measured of a (job kind, scale factor, accelerator type) stands (evidence.py): ten times as precise as anything
else, the precision-weighted combination is the measurement. Where nothing was, completion and scaling (beliefs.py) and
what the user states (statements.py) are combined by their precisions; a statement that contradicts what is known loses
weight, and so does a user whose statements proved wrong.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.estimator import statements
from gavel.estimator.aside import Aside, gathered
from gavel.estimator.beliefs import COMPLETED_ERROR, Belief, Beliefs, believe
from gavel.estimator.doubts import Doubt
from gavel.estimator.evidence import Evidence, on_grid
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.layered import Layered
from gavel.estimator.learning import Known, learned
from gavel.estimator.matrix import Cells, matrix
from gavel.estimator.pairs import PairEstimates, Sized
from gavel.estimator.profiling import pairs_worth_trying
from gavel.estimator.tables import CONSOLIDATED, Key, evidence_of, foreign, is_aside, key_of, row_of, side_key_of
from gavel.ports import ThroughputEstimate, ThroughputMatrix
from gavel.types import AcceleratorType, BoolArray, FloatArray, IntArray, Job, JobSpec, Measurement, PairRates

ANSWERS_MAX = 50_000
AGREEMENT = 0.1  # of log(steps/s), between a statement and everything else
SURPRISE = 2.0  # deviations beyond which a statement is no error of the usual kind
OPTIMISM = 1.645  # deviations above what is expected of a pair that is tried
TRUST = 0.5  # error of log(steps/s) up to which a user is taken at the word, until something is measured


@dataclass(slots=True)
class _Memory:
    """What follows from the published rates, worked out when first asked for; shared while those stay the same."""

    beliefs: Beliefs | None = None
    cells: Cells | None = None
    aside: Aside | None = None
    reputations: Mapping[str, statements.Reputation] | None = None
    predicted: dict[object, tuple[ThroughputEstimate, ...]] = field(default_factory=dict)
    rows: dict[Key, tuple[Evidence, ThroughputEstimate]] = field(default_factory=dict)  # outlives a version

    def next(self) -> "_Memory":
        """Of a version in which a rate has moved."""
        return _Memory(rows=self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledThroughputs:
    """Implements ThroughputEstimator; immutable. `version` grows whenever a rate that `estimate` gives may have moved.

    References are kinds measured elsewhere: they count as evidence on relative speeds and are no part of the table.
    """

    known: Known = field(default_factory=Known)
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
        rows = list(table)
        measured = [row for row in rows if row.measurements > 0]
        kinds = dict.fromkeys(row.kind for row in measured if OWN_KIND in row.kind)
        known = Known(
            rates=Layered({key_of(row): evidence_of(row) for row in measured if not is_aside(row)}),
            side_rates=Layered({side_key_of(row): evidence_of(row) for row in measured if is_aside(row)}),
            doubts=Layered({key_of(row): Doubt(refused=row.refused) for row in rows if not row.measurements}),
            own_kinds=Layered({kind.partition(OWN_KIND)[2]: kind for kind in kinds}),
            references={key_of(row): foreign(row) for row in references},
            core_sharing=core_sharing,
        )
        return cls(known=known)

    # --- learning -----------------------------------------------------------------------------------------------

    def learn(self, measurements: Sequence[Measurement]) -> "ReconciledThroughputs":
        """A new estimator that also knows these; repeated, stale, too short or impossible ones move no estimate."""
        known, is_news = learned(self.known, measurements, self._beliefs)
        if not is_news:
            return replace(self, known=known)
        return replace(self, known=known, version=self.version + 1, _memory=self._memory.next())

    def kind_of(self, job: Job) -> str:
        """The kind whose rates are the job's: its own once it was seen to differ from the rest of its kind."""
        return self.known.own_kinds.get(job.id) or job.spec.kind

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
            is_completed = not spec.throughput_steps_per_s and spec.kind in self._beliefs(types).row_of
            predicted[question] = (self._completed if is_completed else self._predicted)(spec, types)
        return tuple(each or guess for each, guess in zip(found, predicted[question], strict=True))

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        """What `estimate` says of each of n specifications, as arrays (n, m): cheap also for very many."""
        if not types:
            return ThroughputMatrix.of([()] * len(specs), types)
        return matrix(specs, types, self._cells(types), self.estimate)

    def estimate_aside(
        self,
        spec: JobSpec,
        types: Sequence[AcceleratorType],
        *,
        partner: str | None = None,
        placement: str = CONSOLIDATED,
    ) -> tuple[ThroughputEstimate, ...]:
        """The same beside a job of kind `partner` on the same workers, or with a gang that is `spread` over nodes."""
        alone = self.estimate(spec, types)
        if partner is None and placement == CONSOLIDATED:
            return alone
        aside = self._aside(types)
        return tuple(aside.estimate(each, partner, placement) for each in alone)

    def pair_rates(self, jobs: Sequence[Job], types: Sequence[AcceleratorType], *, tries: int = 0) -> PairRates:
        """What n jobs reach packed, by their kinds; jobs of one kind and scale factor are as fast as the first of them.

        Pairs of two scale factors have rate 0. So many pairs that nobody measured, those whose knowledge may change the
        packing most, have the rate that they may well reach: a policy that packs them then learns what they do reach.
        """
        known = {(self.kind_of(job), job.spec.scale_factor): job.spec for job in reversed(jobs)}
        kinds = sorted(known)
        row_of = {kind: row for row, kind in enumerate(kinds)}
        kind_of_job = np.array([row_of[self.kind_of(job), job.spec.scale_factor] for job in jobs], dtype=np.int64)
        specs = [replace(known[kind], kind=kind[0]) for kind in kinds]
        alone = self.matrix(specs, types).steps_per_s
        shares = self._shares(kinds, types, np.bincount(kind_of_job, minlength=len(kinds)), tries)
        sizes = np.array([size for _, size in kinds])
        rates = np.transpose(shares, (1, 2, 0)) * alone.reshape(len(kinds), 1, len(types))
        return PairRates(kind_of_job=kind_of_job, steps_per_s=rates * (sizes[:, None] == sizes)[:, :, None])

    def _shares(
        self, kinds: Sequence[Sized], types: Sequence[AcceleratorType], count: IntArray, tries: int
    ) -> FloatArray:
        """Normalised rates of the pairs, (m, n, n): what is expected, and of those to try what may well be."""
        found = self.pairs(kinds, types)
        shares, hoped = found.rate.copy(), found.within(OPTIMISM)
        if tries:
            for pair in pairs_worth_trying(found, self._untried(kinds, types, count), most=tries):
                for cell in (pair, (pair[0], pair[2], pair[1])):
                    shares[cell] = hoped[cell]
        return shares

    def _untried(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType], count: IntArray) -> BoolArray:
        """Pairs (m, n, n) of two jobs that are there, of one scale factor, which nobody measured."""
        sizes = np.array([size for _, size in kinds])
        there = (sizes[:, None] == sizes) & ((count[:, None] > 1) | ~np.eye(len(kinds), dtype=bool))
        untried: BoolArray = np.repeat(there[None], len(types), axis=0)
        row_of, column_of = ({each: place for place, each in enumerate(all_)} for all_ in (kinds, types))
        for kind, size, name, partner, _ in self.known.side_rates.flat():
            pair = row_of.get((kind, size)), row_of.get((partner, size))
            if name in column_of and None not in pair:
                untried[column_of[name], pair[0], pair[1]] = untried[column_of[name], pair[1], pair[0]] = False
        return untried

    def pairs(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType]) -> PairEstimates:
        """Normalised rates of n (kind, scale factor) beside each other, with their doubt."""
        return self._aside(types).pairs(kinds, types)

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything measured, and what was refused; sorted by kind, scale factor, type, partner and placement."""
        rates = self.known.rates.flat()
        alone = [self._row_of(key, rate) for key, rate in rates.items()]
        aside = [
            replace(row_of(key[:3], rate), partner=key[3] or None, placement=key[4])
            for key, rate in self.known.side_rates.flat().items()
        ]
        refused = [self._refused(key, doubt) for key, doubt in self.known.doubts.flat().items() if key not in rates]
        return tuple(sorted(alone + aside + refused, key=side_key_of))

    def reputations(self) -> Mapping[str, statements.Reputation]:
        """How good the statements of each user were, by name."""
        if self._memory.reputations is None:
            self._memory.reputations = statements.reputations(statements.statements(self.table()))
        return self._memory.reputations

    def _measured(self, key: Key) -> ThroughputEstimate | None:
        """What was measured at full load; None: nothing."""
        rate = self.known.rates.get(key)
        return self._row_of(key, rate) if rate is not None and rate.is_representative else None

    def _row_of(self, key: Key, rate: Evidence) -> ThroughputEstimate:
        rows = self._memory.rows
        if key not in rows or rows[key][0] is not rate:
            rows[key] = rate, row_of(key, rate)
        return rows[key][1]

    def _refused(self, key: Key, doubt: Doubt) -> ThroughputEstimate:
        """What is believed instead."""
        kind, size, name = key
        spec = JobSpec(kind=kind, scale_factor=size, user="", tier="", argv=(), total_steps=1)
        return replace(self.estimate(spec, [name])[0], refused=doubt.refused)

    def _completed(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """What to believe of a kind of which something was measured, on types where it was not; nobody states it."""
        beliefs = self._beliefs(types)
        row, columns = beliefs.row_of[spec.kind], [beliefs.types.index(name) for name in types]
        rates, errors = (each[row, columns].tolist() for each in beliefs.of_all(spec.scale_factor))
        return tuple(
            self._guess(spec, name, rate, error, "completed" if error <= COMPLETED_ERROR else "inferred")
            for name, rate, error in zip(types, rates, errors, strict=True)
        )

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
            is_new = (spec.kind, spec.scale_factor, name) not in self.known.rates
            is_as_stated = name in stated and trust <= TRUST and _agrees(belief, stated[name], rate)
            source = _source(belief, name in stated and is_new, bool(stated), error)
            found.append(self._guess(spec, name, stated[name] if is_as_stated else rate, error, source))
        return tuple(found)

    def _guess(
        self, spec: JobSpec, name: AcceleratorType, rate: float, error: float, source: str
    ) -> ThroughputEstimate:
        known = self.known.rates.get((spec.kind, spec.scale_factor, name))
        return ThroughputEstimate(
            kind=spec.kind,
            scale_factor=spec.scale_factor,
            accelerator_type=name,
            steps_per_s=rate,
            relative_error=error,
            source=source,
            measurements=known.count if known else 0,
        )

    def _cells(self, types: Sequence[AcceleratorType]) -> Cells:
        beliefs = self._beliefs(types)
        cells = self._memory.cells
        if cells is None or cells.beliefs is not beliefs or cells.rates is not self.known.rates:
            cells = self._memory.cells = Cells(self.known.rates, beliefs)
        return cells

    def _aside(self, types: Sequence[AcceleratorType]) -> Aside:
        beliefs = self._beliefs(types)
        aside = self._memory.aside
        if aside is None or aside.beliefs is not beliefs:
            aside = self._memory.aside = Aside(self.known.rates.flat(), self.known.side_rates.flat(), beliefs)
        return aside

    def _beliefs(self, types: Sequence[AcceleratorType]) -> Beliefs:
        known = self._memory.beliefs
        if known is None or not set(types) <= set(known.types):
            rates = {**self.known.references, **gathered(self.known.side_rates.flat()), **self.known.rates.flat()}
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
