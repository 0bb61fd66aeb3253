"""The estimator of the service: it combines all sources on a throughput in log space.

A measurement of a (job kind, scale factor, accelerator type) is the estimate itself (evidence.py): it is ten times as
precise as all else, so a combination would hardly differ. Without one, completion and scaling (beliefs.py) and
the user claims (user_claims.py) are combined, each weighted by its precision. A claim that contradicts the estimate
loses weight, and so does a user whose claims proved wrong.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.estimator import user_claims
from gavel.estimator.beliefs import COMPLETED_ERROR, Belief, Beliefs, believe
from gavel.estimator.evidence import Evidence, on_grid
from gavel.estimator.interference import ColocatedKey, Interference, gathered, measured_fractions
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.layered import Layered
from gavel.estimator.learning import LearnedState, kind_of_job, learned
from gavel.estimator.matrix import Cells, matrix, question
from gavel.estimator.memory_fit import fits_together, needed_bytes
from gavel.estimator.pairs import PairEstimates, Sized
from gavel.estimator.profiling import pairs_worth_trying, pays
from gavel.estimator.regions import without_regions
from gavel.estimator.rejected_reports import RejectedReport
from gavel.estimator.tables import Key, evidence_of, foreign, interference_key_of, is_interference, key_of, row_of
from gavel.ports import ColocatedEstimate, ThroughputEstimate, ThroughputMatrix
from gavel.ports import ThroughputSource as Source
from gavel.types import (
    AcceleratorType,
    BoolArray,
    FloatArray,
    IntArray,
    Job,
    JobSpec,
    Measurement,
    PairRates,
    plain_type,
)

ANSWERS_MAX = 50_000
AGREEMENT = 0.1  # of log(steps/s), between a statement and everything else
SURPRISE = 2.0  # deviations beyond which a statement is no error of the usual kind
OPTIMISM = 1.645  # deviations above what is expected of a pair that is tried, and below it of one that has to pay
TRUST = 0.5  # error of log(steps/s) up to which a user is taken at the word, until something is measured


@dataclass(slots=True)
class _Memory:
    """What follows from the published rates, worked out when first asked for; shared while those stay the same."""

    beliefs: Beliefs | None = None
    cells: Cells | None = None
    interference: Interference | None = None
    reputations: Mapping[str, user_claims.Reputation] | None = None
    predicted: dict[object, tuple[ThroughputEstimate, ...]] = field(default_factory=dict)
    rows: dict[Key, tuple[Evidence, ThroughputEstimate]] = field(default_factory=dict)  # outlives a version

    def next(self) -> "_Memory":
        """Return the cache of the next version, in which a rate has moved."""
        return _Memory(rows=self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledThroughputs:
    """Implements ThroughputEstimator; immutable. `version` grows whenever a rate that `estimate` gives may have moved.

    `reference_profiles` are of kinds measured elsewhere: evidence on relative speeds, and no part of the table.
    `fits_by_rate`: any two jobs fit into one accelerator's memory as far as is known, as in a simulation, where those
    that do not make no progress together.
    """

    state: LearnedState = field(default_factory=LearnedState)
    version: int = 0
    fits_by_rate: bool = False
    _memory: _Memory = field(default_factory=_Memory, compare=False, repr=False)

    @classmethod
    def from_table(
        cls,
        table: Iterable[ThroughputEstimate],
        *,
        core_sharing: int = 1,
        reference_profiles: Iterable[ThroughputEstimate] = (),
    ) -> "ReconciledThroughputs":
        """Return the estimator with the rates of a stored table, for use after a restart."""
        rows = list(table)
        measured = [row for row in rows if row.measurements > 0]
        kinds = dict.fromkeys(row.kind for row in measured if OWN_KIND in row.kind)
        state = LearnedState(
            rates=Layered({key_of(row): evidence_of(row) for row in measured if not is_interference(row)}),
            interference_rates=Layered(
                {interference_key_of(row): evidence_of(row) for row in measured if is_interference(row)}
            ),
            rejected_reports=Layered(
                {key_of(row): RejectedReport(refused=row.refused) for row in rows if not row.measurements}
            ),
            own_kinds=Layered({kind.partition(OWN_KIND)[2]: kind for kind in kinds}),
            reference_profiles={key_of(row): foreign(row) for row in reference_profiles},
            core_sharing=core_sharing,
        )
        return cls(state=state)

    # --- learning -----------------------------------------------------------------------------------------------

    def learn(self, measurements: Sequence[Measurement]) -> "ReconciledThroughputs":
        """Return a new estimator with these; repeated, stale, too short or impossible ones move no estimate."""
        state, is_news = learned(self.state, measurements, self._beliefs)
        if not is_news:
            return replace(self, state=state)
        return replace(self, state=state, version=self.version + 1, _memory=self._memory.next())

    def kind_of(self, job: Job) -> str:
        """Return the kind whose rates are the job's: its own kind once it has differed from the rest of its kind."""
        return kind_of_job(self.state.own_kinds.get(job.id), job.spec.kind)

    # --- answering ----------------------------------------------------------------------------------------------

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """Return one estimate (steps/s) for each of `types`, in order; finite and positive.

        The region of a type makes no difference, and the estimate names none.
        """
        types = [plain_type(name) for name in types]
        measured = [self._measured((spec.kind, spec.scale_factor, name)) for name in types]
        if all(measured):
            return tuple(each for each in measured if each)
        asked = question(spec), tuple(types)
        predicted = self._memory.predicted
        answer = predicted.get(asked)  # read once: another thread may clear the cache
        if answer is None:
            if len(predicted) >= ANSWERS_MAX:
                predicted.clear()
            is_completed = not spec.throughput_steps_per_s and spec.kind in self._beliefs(types).row_of
            answer = predicted[asked] = (self._completed if is_completed else self._predicted)(spec, types)
        return tuple(each or guess for each, guess in zip(measured, answer, strict=True))

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        """Return the results of `estimate` for n specifications as arrays (n, m); fast also for many thousands."""
        if not types:
            return ThroughputMatrix.of([()] * len(specs), types)
        types = [plain_type(name) for name in types]
        return matrix(specs, types, self._cells(types), self.estimate)

    def pair_rates(
        self, jobs: Sequence[Job], types: Sequence[AcceleratorType], memory_bytes: Sequence[int], *, tries: int = 0
    ) -> PairRates | None:
        """Return the rates of n jobs in pairs, by kind; jobs of one kind and scale factor have the rates of the first.

        Pairs of different scale factors have rate 0, and so have those that do not fit into an accelerator's memory
        (memory_fit.py), and those that may lose by it: both together do more than one job alone wherever the truth lies
        in the interval of the estimate. For `tries` unmeasured pairs, those whose measurement may change the packing
        most, the rate is an optimistic one: so a policy packs them, and they are measured. None if no pair fits.
        """
        if not (self.fits_by_rate or any(memory_bytes)):
            return None
        types, memory_bytes, column_of_type = without_regions(types, memory_bytes)
        spec_of_kind = {(self.kind_of(job), job.spec.scale_factor): job.spec for job in reversed(jobs)}
        kinds = sorted(spec_of_kind)
        row_of = {kind: row for row, kind in enumerate(kinds)}
        kind_of_job = np.array([row_of[self.kind_of(job), job.spec.scale_factor] for job in jobs], dtype=np.int64)
        sizes, count = np.array([size for _, size in kinds]), np.bincount(kind_of_job, minlength=len(kinds))
        there = (sizes[:, None] == sizes) & ((count[:, None] > 1) | ~np.eye(len(kinds), dtype=bool))
        fits = self._fits(kinds, [job.spec.accelerator_memory_bytes for job in jobs], kind_of_job, types, memory_bytes)
        if not (fits & there).any():
            return None
        specs = [replace(spec_of_kind[kind], kind=kind[0]) for kind in kinds]
        alone = self.matrix(specs, types).steps_per_s
        shares = self._shares(kinds, types, fits & there, tries)
        rates = np.transpose(shares, (1, 2, 0)) * alone.reshape(len(kinds), 1, len(types))
        return PairRates(kind_of_job=kind_of_job, steps_per_s=rates[:, :, column_of_type])

    def _fits(
        self,
        kinds: Sequence[Sized],
        stated_bytes: Sequence[int],
        kind_of_job: IntArray,
        types: Sequence[AcceleratorType],
        memory_bytes: Sequence[int],
    ) -> BoolArray:
        """Return which kinds fit together, (m, n, n); a kind states the most that one of its jobs does."""
        if self.fits_by_rate:
            return np.ones((len(types), len(kinds), len(kinds)), dtype=np.bool_)
        most = np.zeros(len(kinds))
        np.maximum.at(most, kind_of_job, np.asarray(stated_bytes, dtype=float))
        return fits_together(needed_bytes(kinds, most, types, self.state.rates), memory_bytes)

    def _shares(
        self, kinds: Sequence[Sized], types: Sequence[AcceleratorType], allowed: BoolArray, tries: int
    ) -> FloatArray:
        """Return the normalised rates of the `allowed` pairs, (m, n, n): the mean if they pay, 0 if not, optimistic
        for a try.
        """
        estimates = self.pairs(kinds, types)
        shares = np.where(allowed & pays(estimates, OPTIMISM), estimates.rate, 0.0)
        optimistic = estimates.within(OPTIMISM)
        if tries:
            for pair in pairs_worth_trying(estimates, self._untried(kinds, types, allowed), most=tries):
                for cell in (pair, (pair[0], pair[2], pair[1])):
                    shares[cell] = optimistic[cell]
        return shares

    def _untried(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType], allowed: BoolArray) -> BoolArray:
        """Return (m, n, n): True for those of the `allowed` pairs that were not measured."""
        untried: BoolArray = allowed.copy()
        row_of, column_of = ({each: place for place, each in enumerate(all_)} for all_ in (kinds, types))
        for kind, size, name, partner, _ in self.state.interference_rates.flat():
            pair = row_of.get((kind, size)), row_of.get((partner, size))
            if name in column_of and None not in pair:
                untried[column_of[name], pair[0], pair[1]] = untried[column_of[name], pair[1], pair[0]] = False
        return untried

    def pairs(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType]) -> PairEstimates:
        """Return normalised rates and errors (m, n, n) of all pairs of n (kind, scale factor) on m types."""
        return self._interference(types).pairs(kinds, types)

    def colocated_estimates(
        self, pairs: Sequence[tuple[Job, Job]], name: AcceleratorType
    ) -> tuple[ColocatedEstimate, ...]:
        """Return how the first job of each pair does beside the second: as measured, else as other pairs suggest.

        What a rank needs of memory is as for packed pairs (memory_fit.py).
        """
        name, kinds = plain_type(name), [(self.kind_of(job), job.spec.scale_factor) for job, _ in pairs]
        stated = np.array([job.spec.accelerator_memory_bytes for job, _ in pairs], dtype=float)
        needed = needed_bytes(kinds, stated, [name], self.state.rates).ravel()
        specs = [replace(job.spec, kind=kind) for (job, _), (kind, _) in zip(pairs, kinds, strict=True)]
        alone = [self.estimate(spec, [name])[0].steps_per_s for spec in specs]
        cells = [(*kind, name, partner.spec.kind) for kind, (_, partner) in zip(kinds, pairs, strict=True)]
        measured = measured_fractions(cells, alone, self.state.interference_rates)
        kept = measured | self._expected_fractions([cell for cell in cells if cell not in measured], name)
        return tuple(
            ColocatedEstimate(
                kept_fraction=kept[cell],
                is_measured=cell in measured,
                needed_bytes=int(most) if math.isfinite(most) else 0,
            )
            for cell, most in zip(cells, needed.tolist(), strict=True)
        )

    def _expected_fractions(self, cells: Sequence[ColocatedKey], name: AcceleratorType) -> dict[ColocatedKey, float]:
        """What kinds are expected to keep of their rates beside partners on a type, from other pairs."""
        if not cells:
            return {}
        kinds = sorted({sized for kind, size, _, partner in cells for sized in ((kind, size), (partner, size))})
        row_of, rates = {kind: row for row, kind in enumerate(kinds)}, self.pairs(kinds, [name]).rate[0]
        return {cell: float(rates[row_of[cell[:2]], row_of[cell[3], cell[1]]]) for cell in cells}

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Return all rates measured or refused, sorted by kind, scale factor, type, partner and placement."""
        rates = self.state.rates.flat()
        alone = [self._row_of(key, rate) for key, rate in rates.items()]
        interference = [
            replace(row_of(key[:3], rate), partner=key[3] or None, placement=key[4])
            for key, rate in self.state.interference_rates.flat().items()
        ]
        refused = [
            self._refused(key, rejected)
            for key, rejected in self.state.rejected_reports.flat().items()
            if key not in rates
        ]
        return tuple(sorted(alone + interference + refused, key=interference_key_of))

    def reputations(self) -> Mapping[str, user_claims.Reputation]:
        """Return how good the claims of each user were, by user name."""
        if self._memory.reputations is None:
            self._memory.reputations = user_claims.reputations(user_claims.user_claims(self.table()))
        return self._memory.reputations

    def _measured(self, key: Key) -> ThroughputEstimate | None:
        """Return the rate measured at full load; None if there is none."""
        rate = self.state.rates.get(key)
        return self._row_of(key, rate) if rate is not None and rate.is_representative else None

    def _row_of(self, key: Key, rate: Evidence) -> ThroughputEstimate:
        rows = self._memory.rows
        if key not in rows or rows[key][0] is not rate:
            rows[key] = rate, row_of(key, rate)
        return rows[key][1]

    def _refused(self, key: Key, rejected: RejectedReport) -> ThroughputEstimate:
        """Return the estimate used instead of a refused rate."""
        kind, size, name = key
        spec = JobSpec(kind=kind, scale_factor=size, user="", tier="", argv=(), total_steps=1)
        return replace(self.estimate(spec, [name])[0], refused=rejected.refused)

    def _completed(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """Return the estimates of a measured kind on types where it was not measured; without user claims."""
        beliefs = self._beliefs(types)
        row, columns = beliefs.row_of[spec.kind], [beliefs.types.index(name) for name in types]
        rates, errors = (each[row, columns].tolist() for each in beliefs.of_all(spec.scale_factor))
        return tuple(
            self._guess(spec, name, rate, error, Source.COMPLETED if error <= COMPLETED_ERROR else Source.INFERRED)
            for name, rate, error in zip(types, rates, errors, strict=True)
        )

    def _predicted(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """Return the estimates, with user claims, on types where this kind and size was not measured at full load."""
        stated = {name: rate for name, rate in spec.throughput_steps_per_s.items() if user_claims.usable(rate)}
        beliefs = self._beliefs(types)
        belief = beliefs.of(spec.kind, spec.scale_factor)
        mean, covariance = belief.mean, belief.covariance
        trust = user_claims.trust_in(spec.user, self.reputations()) if stated else 0.0
        if stated:
            mean, covariance = _with_statements(belief, beliefs.types, stated, trust)
        columns = [beliefs.types.index(name) for name in types]
        rates = on_grid(mean[columns])
        errors = np.sqrt(np.maximum(covariance[columns, columns], 0.0))
        estimates = []
        for name, rate, error in zip(types, rates.tolist(), errors.tolist(), strict=True):
            is_new = (spec.kind, spec.scale_factor, name) not in self.state.rates
            is_as_stated = name in stated and trust <= TRUST and _agrees(belief, stated[name], rate)
            source = _source(belief, name in stated and is_new, bool(stated), error)
            estimates.append(self._guess(spec, name, stated[name] if is_as_stated else rate, error, source))
        return tuple(estimates)

    def _guess(
        self, spec: JobSpec, name: AcceleratorType, rate: float, error: float, source: Source
    ) -> ThroughputEstimate:
        evidence = self.state.rates.get((spec.kind, spec.scale_factor, name))
        return ThroughputEstimate(
            kind=spec.kind,
            scale_factor=spec.scale_factor,
            accelerator_type=name,
            steps_per_s=rate,
            relative_error=error,
            source=source,
            measurements=evidence.count if evidence else 0,
        )

    def _cells(self, types: Sequence[AcceleratorType]) -> Cells:
        beliefs = self._beliefs(types)
        cells = self._memory.cells
        if cells is None or cells.beliefs is not beliefs or cells.rates is not self.state.rates:
            cells = self._memory.cells = Cells(self.state.rates, beliefs)
        return cells

    def _interference(self, types: Sequence[AcceleratorType]) -> Interference:
        beliefs = self._beliefs(types)
        interference = self._memory.interference
        if interference is None or interference.beliefs is not beliefs:
            interference = self._memory.interference = Interference(
                self.state.rates.flat(), self.state.interference_rates.flat(), beliefs
            )
        return interference

    def _beliefs(self, types: Sequence[AcceleratorType]) -> Beliefs:
        beliefs = self._memory.beliefs
        if beliefs is None or not set(types) <= set(beliefs.types):
            rates = {
                **self.state.reference_profiles,
                **gathered(self.state.interference_rates.flat()),
                **self.state.rates.flat(),
            }
            asked = {*types, *(beliefs.types if beliefs else ())}
            beliefs = self._memory.beliefs = believe(rates, sorted(asked))
        return beliefs


def _agrees(belief: Belief, stated: float, rate: float) -> bool:
    """Return whether no measurement contradicts the claim; the estimate is then exactly the claimed rate."""
    return not belief.is_level_known or abs(math.log(stated / rate)) <= AGREEMENT


def _source(belief: Belief, is_stated: bool, is_any_stated: bool, error: float) -> Source:
    """Return the source of an estimate; `completed` is as good as measured, `inferred` is worth a measurement."""
    if is_stated:
        return Source.STATED
    if belief.is_level_known and error <= COMPLETED_ERROR:
        return Source.COMPLETED
    return Source.INFERRED if belief.has_relatives or is_any_stated else Source.UNKNOWN


def _with_statements(
    belief: Belief, types: Sequence[AcceleratorType], stated: Mapping[AcceleratorType, float], error: float
) -> tuple[FloatArray, FloatArray]:
    """Return the Gaussian given a user's claims (a Kalman update); the more they surprise, the less they weigh."""
    columns = [types.index(name) for name in stated if name in types]
    covariance = belief.covariance if belief.is_level_known else belief.covariance + 100.0  # any unit of work
    if not columns:
        return belief.mean, covariance
    gap = np.array([math.log(stated[types[column]]) for column in columns]) - belief.mean[columns]
    noise = user_claims.covariance(error, len(columns))
    expected = covariance[np.ix_(columns, columns)] + noise
    surprise = math.sqrt(float(gap @ np.linalg.solve(expected, gap)) / len(columns))
    expected += noise * (max(1.0, surprise / SURPRISE) ** 2 - 1)
    gain = np.linalg.solve(expected, covariance[columns]).T
    return belief.mean + gain @ gap, covariance - gain @ covariance[columns]
