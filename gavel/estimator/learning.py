"""From measurements to what is known: one report at a time, each in its place, or in none.

1. A report heard before, or out of order, or of too short a time, says nothing.
2. It counts for its job's kind; for a kind of the job's own (`kind#job`) once the job was seen to differ.
3. The first report of a kind on a type is held against what was known before (doubts.py).
4. Any other joins the evidence (evidence.py), and may show that its job differs from the rest of its kind.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gavel.estimator import statements
from gavel.estimator.beliefs import Beliefs
from gavel.estimator.doubts import LARGEST_LOG_RATE, Doubt, log_limit
from gavel.estimator.evidence import KNOWN_REPORTS, SHORTEST_S, STATERS_MAX, Evidence, first, restarted, updated
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.layered import Draft, Layered
from gavel.estimator.tables import CONSOLIDATED, Key, SideKey
from gavel.types import AcceleratorType, JobId, Measurement

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

JOBS_REMEMBERED = 20_000  # whose newest report is known, to tell a repeated one
OWN_KINDS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything measured. `rates`: gangs alone and consolidated; `side_rates`: beside a partner or spread over nodes.

    `doubts`: what was refused where nothing is known yet; `seen`: the newest (token, sequence) of each job;
    `own_kinds`: of the jobs that differ from the rest of their kind. `references` are kinds measured elsewhere.
    """

    rates: Layered[Key, Evidence] = field(default_factory=Layered)
    side_rates: Layered[SideKey, Evidence] = field(default_factory=Layered)
    doubts: Layered[Key, Doubt] = field(default_factory=Layered)
    seen: Layered[JobId, tuple[int, int]] = field(default_factory=Layered)
    own_kinds: Layered[JobId, str] = field(default_factory=Layered)
    references: Mapping[Key, Evidence] = field(default_factory=dict)
    core_sharing: int = 1  # workers on a core: what an idle sibling flatters a rate by


def learned(
    known: Known, measurements: Sequence[Measurement], believed: Callable[[Sequence[AcceleratorType]], Beliefs]
) -> tuple[Known, bool]:
    """What is known with these, and whether an estimate may have moved. `believed` is what follows from `known`."""
    learner = _Learner(known, believed)
    for each in measurements:
        learner.take(each)
    return learner.finished(), learner.is_news


class _Learner:
    """What is known, while reports are taken in."""

    def __init__(self, known: Known, believed: Callable[[Sequence[AcceleratorType]], Beliefs]) -> None:
        self.is_news = False
        self._kinds: set[str] | None = None  # measured before these reports
        self._known, self._believed = known, believed
        self._rates, self._side_rates = Draft(known.rates), Draft(known.side_rates)
        self._doubts, self._seen, self._own_kinds = Draft(known.doubts), Draft(known.seen), Draft(known.own_kinds)

    def take(self, each: Measurement) -> None:
        """One report, or that there is none."""
        if each.partner is not None and not each.steps:
            self._take_silence(each)
        elif (each.token, each.sequence) > (self._seen.get(each.job_id) or (0, 0)):
            self._seen.put(each.job_id, (each.token, each.sequence))
            if each.seconds >= SHORTEST_S and each.steps > 0:
                self._take_rate(each)

    def _take_rate(self, each: Measurement) -> None:
        flattered = 1 if each.is_representative else self._known.core_sharing
        log_rate = math.log(each.steps / each.seconds / flattered)
        key = self._key_of(each)
        if each.partner is not None or each.placement != CONSOLIDATED:
            self._note(self._side_rates, (*key, each.partner or "", each.placement), each, log_rate)
        elif not self._is_doubtful(key, each, log_rate):
            self._note(self._rates, key, each, log_rate)
            self._tell_apart(key, each)

    def _take_silence(self, each: Measurement) -> None:
        """A gang that did nothing beside a partner of which nothing is known is taken for half a step in that time."""
        key = *self._key_of(each), each.partner or "", each.placement
        if self._side_rates.get(key) is None and each.seconds >= SHORTEST_S:
            self._note(self._side_rates, key, each, math.log(0.5 / each.seconds))

    def _key_of(self, each: Measurement) -> Key:
        return self._own_kinds.get(each.job_id) or each.kind, each.scale_factor, each.accelerator_type

    def finished(self) -> Known:
        """All of it; the jobs heard of longest ago are forgotten first."""
        found = replace(
            self._known,
            rates=self._rates.done(),
            side_rates=self._side_rates.done(),
            doubts=self._doubts.done(),
            seen=_newest(self._seen.done(), JOBS_REMEMBERED),
            own_kinds=_newest(self._own_kinds.done(), OWN_KINDS_MAX),
        )
        return found if len(found.own_kinds) >= len(self._known.own_kinds) else _without_lost_kinds(found)

    def _note(self, rates: Draft[_Key, Evidence], key: _Key, each: Measurement, log_rate: float) -> None:
        """Put one measurement in its place."""
        old = rates.get(key)
        # A guess from an idle sibling's time never mixes with rates measured at full load: the better fact wins.
        if old is not None and old.is_representative and not each.is_representative:
            return
        if old is None or each.is_representative != old.is_representative:
            new = first(log_rate, each.seconds, is_representative=each.is_representative, job_id=each.job_id)
            new = replace(new, stated_by=old.stated_by) if old else new
        else:
            new = updated(old, log_rate, each.seconds, each.job_id)
        new = _with_statement(new, each)
        rates.put(key, new)
        self.is_news |= old is None or _is_news(old, new)

    def _is_doubtful(self, key: Key, each: Measurement, log_rate: float) -> bool:
        """True for a first report that is not believed; it is counted."""
        if self._rates.get(key) is not None or log_rate <= self._log_limit(key):
            return False
        doubt = (self._doubts.get(key) or Doubt()).with_report(each.job_id, log_rate)
        self._doubts.put(key, doubt)
        return not doubt.is_confirmed(log_rate)

    def _log_limit(self, key: Key) -> float:
        if self._kinds is None:
            self._kinds = {kind for kind, _, _ in self._known.rates.flat()}
        return log_limit(self._believed([key[2]]), *key) if key[0] in self._kinds else LARGEST_LOG_RATE

    def _tell_apart(self, key: Key, each: Measurement) -> None:
        """A job that differs from the rest of its kind gets a kind of its own, which begins with what it showed."""
        evidence = self._rates.get(key)
        rates = evidence.deviation_of(each.job_id) if evidence else ()
        if rates and self._own_kinds.get(each.job_id) is None:
            kind = f"{each.kind}{OWN_KIND}{each.job_id}"
            self._own_kinds.put(each.job_id, kind)
            self._rates.put((kind, *key[1:]), restarted(rates, each.job_id))
            self.is_news = True


def _newest(known: Layered[JobId, _Value], most: int) -> Layered[JobId, _Value]:
    """The newest entries; now and then, since it takes a copy."""
    return Layered(dict(list(known.flat().items())[-most:])) if len(known) > 1.25 * most else known


def _is_news(old: Evidence, new: Evidence) -> bool:
    if new.stated_by != old.stated_by or new.is_representative != old.is_representative:
        return True
    return new.published != old.published or (old.count < KNOWN_REPORTS <= new.count)


def _without_lost_kinds(known: Known) -> Known:
    """Without the rates of jobs whose own kind was forgotten."""
    kinds = set(known.own_kinds.values())
    rates = {key: rate for key, rate in known.rates.flat().items() if OWN_KIND not in key[0] or key[0] in kinds}
    return replace(known, rates=Layered(rates))


def _with_statement(evidence: Evidence, each: Measurement) -> Evidence:
    """Remembers what the user said, the newest of a bounded number of users."""
    stated = each.stated_steps_per_s
    if stated is None or not statements.usable(stated) or evidence.stated_by.get(each.user) == stated:
        return evidence
    others = [(user, rate) for user, rate in evidence.stated_by.items() if user != each.user]
    return replace(evidence, stated_by=dict([*others, (each.user, stated)][-STATERS_MAX:]))
