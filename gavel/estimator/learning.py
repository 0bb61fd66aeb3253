"""Learning from measurements: one report after another is added to the evidence, rejected or ignored.

1. A report that is repeated, out of order, or of too short a time is ignored.
2. It counts for its job's kind; for the job's own kind (`kind#job`) once the job has differed from the others.
3. The first report of a kind on a type is compared with the estimate before it (rejected_reports.py).
4. Any other is added to the evidence (evidence.py), and may show that its job differs from the rest of its kind.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gavel.estimator import user_claims
from gavel.estimator.beliefs import Beliefs
from gavel.estimator.evidence import KNOWN_REPORTS, SHORTEST_S, STATERS_MAX, Evidence, first, restarted, updated
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.layered import Draft, Layered
from gavel.estimator.rejected_reports import LARGEST_LOG_RATE, RejectedReport, log_limit
from gavel.estimator.tables import CONSOLIDATED, InterferenceKey, Key
from gavel.types import AcceleratorType, JobId, Measurement

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

JOBS_REMEMBERED = 20_000  # jobs whose newest (generation, sequence) is kept, to ignore repeated reports
MEMORY_GRID_BYTES = 1 << 26  # what jobs hold is rounded up to a multiple: a few pages more are no news
OWN_KINDS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedState:
    """Everything that the estimator has learned from measurements.

    `rates` are of gangs alone and consolidated, `interference_rates` of gangs beside a partner or spread over nodes.
    `rejected_reports` were not believed where no rate was measured yet. `seen` has the newest (generation, sequence)
    of each job and whether it was alone on its workers then, `own_kinds` the kind of each job that differs from the
    rest of its kind, and `reference_profiles` the rates of kinds measured elsewhere.
    """

    rates: Layered[Key, Evidence] = field(default_factory=Layered)
    interference_rates: Layered[InterferenceKey, Evidence] = field(default_factory=Layered)
    rejected_reports: Layered[Key, RejectedReport] = field(default_factory=Layered)
    seen: Layered[JobId, tuple[int, int, bool]] = field(default_factory=Layered)
    own_kinds: Layered[JobId, str] = field(default_factory=Layered)
    reference_profiles: Mapping[Key, Evidence] = field(default_factory=dict)
    core_sharing: int = 1  # workers on a core: the factor by which idle siblings may raise a rate


def learned(
    state: LearnedState, measurements: Sequence[Measurement], believed: Callable[[Sequence[AcceleratorType]], Beliefs]
) -> tuple[LearnedState, bool]:
    """Return the state after these reports, and whether an estimate may have moved.

    `believed` gives the estimates that follow from `state`, for first reports to be compared with.
    """
    learner = _Learner(state, believed)
    for each in measurements:
        learner.take(each)
    return learner.finished(), learner.is_news


class _Learner:
    """The next state, while reports are added."""

    def __init__(self, state: LearnedState, believed: Callable[[Sequence[AcceleratorType]], Beliefs]) -> None:
        self.is_news = False
        self._kinds: set[str] | None = None  # measured before these reports
        self._state, self._believed = state, believed
        self._rates, self._interference_rates = Draft(state.rates), Draft(state.interference_rates)
        self._rejected_reports, self._seen, self._own_kinds = (
            Draft(state.rejected_reports),
            Draft(state.seen),
            Draft(state.own_kinds),
        )

    def take(self, each: Measurement) -> None:
        """Add one report, or the silence of a gang beside a partner."""
        if each.partner is not None and not each.steps:
            self._take_silence(each)
        elif (each.generation, each.sequence) > (before := self._seen.get(each.job_id) or (0, 0, False))[:2]:
            self._seen.put(each.job_id, (each.generation, each.sequence, each.partner is None))
            if each.seconds >= SHORTEST_S and each.steps > 0:
                self._take_rate(each)
                self._take_memory(each, was_alone=before[0] == each.generation and before[2])

    def _take_rate(self, each: Measurement) -> None:
        flattered = 1 if each.is_representative else self._state.core_sharing
        log_rate = math.log(each.steps / each.seconds / flattered)
        key = self._key_of(each)
        if each.partner is not None or each.placement != CONSOLIDATED:
            self._note(self._interference_rates, (*key, each.partner or "", each.placement), each, log_rate)
        elif not self._is_doubtful(key, each, log_rate):
            self._note(self._rates, key, each, log_rate)
            self._tell_apart(key, each)

    def _take_memory(self, each: Measurement, *, was_alone: bool) -> None:
        """Note what a gang holds that was alone at its last report, too; else a partner may have held a part of it."""
        key, units = self._key_of(each), -(-each.accelerator_memory_bytes // MEMORY_GRID_BYTES)
        evidence = self._rates.get(key)
        is_own = was_alone and each.partner is None
        if is_own and evidence is not None and units * MEMORY_GRID_BYTES > evidence.held_bytes:
            self._rates.put(key, replace(evidence, held_bytes=units * MEMORY_GRID_BYTES))
            self.is_news = True

    def _take_silence(self, each: Measurement) -> None:
        """Count a gang that did no step beside a new partner as one that did half a step in that time."""
        key = *self._key_of(each), each.partner or "", each.placement
        if self._interference_rates.get(key) is None and each.seconds >= SHORTEST_S:
            self._note(self._interference_rates, key, each, math.log(0.5 / each.seconds))

    def _key_of(self, each: Measurement) -> Key:
        own = kind_of_job(self._own_kinds.get(each.job_id), each.kind)
        return own, each.scale_factor, each.accelerator_type

    def finished(self) -> LearnedState:
        """Return the next state; jobs whose reports are oldest are forgotten first."""
        state = replace(
            self._state,
            rates=self._rates.done(),
            interference_rates=self._interference_rates.done(),
            rejected_reports=self._rejected_reports.done(),
            seen=_newest(self._seen.done(), JOBS_REMEMBERED),
            own_kinds=_newest(self._own_kinds.done(), OWN_KINDS_MAX),
        )
        return state if len(state.own_kinds) >= len(self._state.own_kinds) else _without_lost_kinds(state)

    def _note(self, rates: Draft[_Key, Evidence], key: _Key, each: Measurement, log_rate: float) -> None:
        """Add one measurement to the evidence under `key`."""
        old = rates.get(key)
        # Rates measured beside idle siblings are never averaged with those measured at full load, which replace them.
        if old is not None and old.is_representative and not each.is_representative:
            return
        if old is None or each.is_representative != old.is_representative:
            new = first(log_rate, each.seconds, is_representative=each.is_representative, job_id=each.job_id)
            new = replace(new, stated_by=old.stated_by, held_bytes=old.held_bytes) if old else new
        else:
            new = updated(old, log_rate, each.seconds, each.job_id)
        new = _with_statement(new, each)
        rates.put(key, new)
        self.is_news |= old is None or _is_news(old, new)

    def _is_doubtful(self, key: Key, each: Measurement, log_rate: float) -> bool:
        """Return True for a first report that is not believed, and count it."""
        if self._rates.get(key) is not None or log_rate <= self._log_limit(key):
            return False
        rejected = (self._rejected_reports.get(key) or RejectedReport()).with_report(each.job_id, log_rate)
        self._rejected_reports.put(key, rejected)
        return not rejected.is_confirmed(log_rate)

    def _log_limit(self, key: Key) -> float:
        if self._kinds is None:
            self._kinds = {kind for kind, _, _ in self._state.rates.flat()}
        return log_limit(self._believed([key[2]]), *key) if key[0] in self._kinds else LARGEST_LOG_RATE

    def _tell_apart(self, key: Key, each: Measurement) -> None:
        """Give a job that differs from the rest of its kind a kind of its own, with the rates of its outliers."""
        evidence = self._rates.get(key)
        rates = evidence.deviation_of(each.job_id) if evidence else ()
        if rates and self._own_kinds.get(each.job_id) is None:
            kind = f"{each.kind}{OWN_KIND}{each.job_id}"
            self._own_kinds.put(each.job_id, kind)
            self._rates.put((kind, *key[1:]), restarted(rates, each.job_id))
            self.is_news = True


def kind_of_job(own: str | None, kind: str) -> str:
    """Return the kind whose rates a job of this kind has: its own, if that is of the same plan."""
    return own if own is not None and own.partition(OWN_KIND)[0] == kind else kind


def _newest(entries: Layered[JobId, _Value], most: int) -> Layered[JobId, _Value]:
    """Return the newest `most` entries, or all while they are at most a quarter more, to copy seldom."""
    return Layered(dict(list(entries.flat().items())[-most:])) if len(entries) > 1.25 * most else entries


def _is_news(old: Evidence, new: Evidence) -> bool:
    if new.stated_by != old.stated_by or new.is_representative != old.is_representative:
        return True
    return new.published != old.published or (old.count < KNOWN_REPORTS <= new.count)


def _without_lost_kinds(state: LearnedState) -> LearnedState:
    """Return the state without the rates of jobs whose own kind was forgotten."""
    kinds = set(state.own_kinds.values())
    rates = {key: rate for key, rate in state.rates.flat().items() if OWN_KIND not in key[0] or key[0] in kinds}
    return replace(state, rates=Layered(rates))


def _with_statement(evidence: Evidence, each: Measurement) -> Evidence:
    """Return the evidence with the report's user claim; the newest `STATERS_MAX` users are kept."""
    stated = each.stated_steps_per_s
    if stated is None or not user_claims.usable(stated) or evidence.stated_by.get(each.user) == stated:
        return evidence
    others = [(user, rate) for user, rate in evidence.stated_by.items() if user != each.user]
    return replace(evidence, stated_by=dict([*others, (each.user, stated)][-STATERS_MAX:]))
