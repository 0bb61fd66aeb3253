"""I20: the time in which gangs hold their workers is accounted for, and once, whatever clocks are set to."""

from dataclasses import dataclass, field

from gavel.backends.gang import GangKey
from gavel.clock import SLOWED
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.faults.shard import SimulatedShard
from gavel.mechanism.jobs.events import EventKind
from gavel.types import Job, JobId, JobState, Reason

DRIFT = 0.03  # by which part two clocks that drift differ at most
LOOKED_S = 5.0  # seconds by which the start and the end of a gang may be seen late
ENDS = frozenset(EventKind) - {EventKind.LAUNCHED, EventKind.REFUSED}  # of gangs


@dataclass(slots=True, kw_only=True)
class _Held:
    """When each part of a gang began and ended, in true time, by node.

    `is_told`: the service was told how it ended; `is_remembered`: no node was restarted since, and forgot when.
    """

    workers: int
    parts: int
    began_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    lost_at_s: float = 0.0
    is_told: bool = False
    is_remembered: bool = True

    @property
    def most_s(self) -> float:
        """The most worker seconds that may be accounted for: if nobody knows its end, until that is noticed."""
        held_s = max(*self.ended_s.values(), self.lost_at_s) - min(self.began_s.values())
        return self.workers * (held_s * (1 + DRIFT) + LOOKED_S)

    @property
    def least_s(self) -> float:
        """The least that has to be: nothing, if nobody can say when it began and ended, or if it never was whole."""
        held_s = min(self.ended_s.values()) - max(self.began_s.values())
        is_known = self.is_told and self.is_remembered and len(self.began_s) == self.parts
        return self.workers * max(0.0, held_s * (SLOWED - DRIFT) - LOOKED_S) if is_known else 0.0


class AccountedTime(Invariant):
    """What a job has received is the time that its gangs have held their workers, as they say themselves."""

    name = "I20_accounted_time"

    def __init__(self) -> None:
        self._held: dict[JobId, dict[int, _Held]] = {}
        self._live: dict[tuple[str, GangKey], _Held] = {}

    def after_change(self, evidence: Evidence) -> None:
        """Note which parts of gangs have begun, and which have ended or are forgotten."""
        now_s, were_live, self._live = evidence.schedule.now_s, self._live, {}
        for node in evidence.nodes:
            for shard in node.shards.values():
                self._note(node.name, shard, now_s)
        for node_name, key in were_live.keys() - self._live.keys():
            were_live[node_name, key].ended_s.setdefault(node_name, now_s)

    def _note(self, node: str, shard: SimulatedShard, now_s: float) -> None:
        job_id, generation = shard.launch.key
        launch, of_job = shard.launch, self._held.setdefault(job_id, {})
        workers, parts = len(launch.instruction.worker_ids), len(set(launch.node_of_rank))
        gang = of_job.setdefault(generation, _Held(workers=workers, parts=parts))
        gang.began_s.setdefault(node, now_s)
        if shard.is_live:
            self._live[node, shard.launch.key] = gang
        gang.is_remembered = gang.is_remembered and shard.started_s is not None

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Note how gangs have ended in the eyes of the service."""
        self.after_change(evidence)  # a node may have been restarted
        for event in commit.changes.events:
            before = commit.before.get(event.job_id)
            if event.kind not in ENDS or before is None or before.state is not JobState.LEASED:
                continue
            gang = self._held.get(before.id, {}).get(before.generation)
            if gang is not None and not (gang.is_told or gang.lost_at_s):  # a session may be over at once after it
                is_lost = event.kind == EventKind.LOST or commit.after[before.id].reason is Reason.LOST_TOO_OFTEN
                has_ended = len(gang.ended_s) == len(gang.began_s)
                gang.is_told = has_ended and not (is_lost or before.over or event.kind == EventKind.CANCELLED)
                gang.lost_at_s = 0.0 if gang.is_told and gang.is_remembered else evidence.schedule.now_s

    def at_end(self, evidence: Evidence) -> None:
        """Compare what each job has received with what its gangs have held."""
        for job in evidence.jobs.values():
            self._check(job)

    def _check(self, job: Job) -> None:
        gangs = [each for each in self._held.get(job.id, {}).values() if each.ended_s]
        received_s = sum(job.received_s.values()) * job.spec.scale_factor
        least_s, most_s = sum(each.least_s for each in gangs), sum(each.most_s for each in gangs)
        if not least_s <= received_s <= most_s + LOOKED_S:
            held = f"its {len(gangs)} gangs held workers for {least_s:.0f} to {most_s:.0f}"
            raise self.fail(f"job {job.id} is accounted {received_s:.0f} worker seconds, and {held}")
