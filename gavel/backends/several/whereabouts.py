"""In which region each gang was launched, and until when it may run there, whether that region answers or not.

The record is written before a gang is launched or its lease extended, so a service that starts again while a region
cannot be reached still knows which of its gangs may live there. Ends of leases are kept by a clock that nobody sets, as
on the nodes: a wall clock that is set ahead ends no lease.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from gavel.backends import machine
from gavel.backends.gang import GangKey
from gavel.backends.several.clock_offset import ahead_s, by_clock
from gavel.ports import Clock, LaunchGang
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, JobId
from gavel.types.rounds import gone_by_s

UNTOLD_LEASE_S = 86_400.0  # of a gang without a record that is in no stored round, either: as long as any that is given
FILE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabout:
    """A gang that was launched in a region. `until_s`: the end of its lease as it was last sent, by the steady clock.

    `wall_until_s` is the same by the wall clock then. `seen` is what the region last told of it, when the clock was
    `seen_ahead_s` ahead of the steady one; None: nothing yet. `is_forgotten`: its end is committed, and the region has
    not heard of that yet.
    """

    job_id: JobId
    generation: int
    region: str
    accelerator_type: str
    worker_ids: tuple[str, ...]
    until_s: float
    wall_until_s: float
    seen: GangSeen | None = None
    seen_ahead_s: float = 0.0
    is_forgotten: bool = False

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.job_id, self.generation

    @property
    def has_ended(self) -> bool:
        """Return whether the region has told that nothing of it runs; a silent one may run where it is cut off."""
        return self.seen is not None and self.seen.exit is not None and not self.seen.is_silent

    @property
    def is_over(self) -> bool:
        """Return whether the region has shown the gang as ended, lost ones included."""
        return self.seen is not None and self.seen.state is GangState.ENDED

    def unheard(self, ahead_s: float) -> GangSeen:
        """Return the gang as it was last seen, by the clock of now, without the reports that were handed over then."""
        if self.seen is not None:
            seen = by_clock(self.seen, ahead_s - self.seen_ahead_s)
            return seen if self.is_over else replace(seen, reports=())
        return GangSeen(
            job_id=self.job_id,
            generation=self.generation,
            state=GangState.RUNNING,
            accelerator_type=self.accelerator_type,
            worker_ids=self.worker_ids,
        )


class Whereabouts:
    """The gangs by job. `grace_s`: from the end of a lease to the kill of what still runs.

    `path` is the file that outlives the service; one that is spoilt counts as empty. `may_run_s`: how many seconds at
    most gangs without a record may run from now on.
    """

    def __init__(
        self,
        path: Path,
        grace_s: float,
        clock: Clock,
        *,
        may_run_s: Mapping[GangKey, float] = MappingProxyType({}),
    ) -> None:
        self._path, self._grace_s, self._clock = path, grace_s, clock
        self._may_run_s, self._opened_s = may_run_s, clock.steady_s()
        self._of_job: dict[JobId, dict[int, Whereabout]] = {}
        boot_id, stored = _stored(path)
        for each in stored:
            same_boot = boot_id == machine.boot_id()
            self._put(each if same_boot else replace(each, until_s=self._by_steady_clock(each.wall_until_s)))
        self._is_stored = True

    def __iter__(self) -> Iterator[Whereabout]:
        """Yield all gangs."""
        return (each for own in self._of_job.values() for each in own.values())

    def get(self, key: GangKey) -> Whereabout | None:
        """Return a gang; None if it is not known."""
        return self._of_job.get(key[0], {}).get(key[1])

    def region_of_job(self, job_id: JobId) -> str:
        """Return the region of the job's newest gang that is known; "" if there is none."""
        own = self._of_job.get(job_id)
        return own[max(own)].region if own else ""

    def may_live_elsewhere(self, job_id: JobId, region: str) -> str:
        """Return another region in which a gang of the job may still run; "" if there is none."""
        others = (each for each in self._of_job.get(job_id, {}).values() if each.region != region)
        return next((each.region for each in others if self.may_live(each)), "")

    def may_live(self, gang: Whereabout) -> bool:
        """Return whether the gang may still run: nobody has told that it ended, and its lease may hold."""
        return not gang.has_ended and self._clock.steady_s() < gone_by_s(gang.until_s, self._grace_s)

    def launched(self, launch: LaunchGang, region: str) -> None:
        """Note a gang that is going to be launched; one that is known stays as it is, with the later end."""
        key = (launch.job_id, launch.generation)
        if self.get(key) is not None:
            self.extended(key, launch.lease_expires_at_s)
            return
        self._put(
            Whereabout(
                job_id=launch.job_id,
                generation=launch.generation,
                region=region,
                accelerator_type=launch.accelerator_type,
                worker_ids=launch.worker_ids,
                until_s=self._by_steady_clock(launch.lease_expires_at_s),
                wall_until_s=launch.lease_expires_at_s,
            )
        )

    def extended(self, key: GangKey, expires_at_s: float) -> None:
        """Note an extension that is going to be sent; none shortens a lease."""
        gang, until_s = self.get(key), self._by_steady_clock(expires_at_s)
        if gang is not None and until_s > gang.until_s:
            self._put(replace(gang, until_s=until_s, wall_until_s=expires_at_s))

    def _by_steady_clock(self, at_s: float) -> float:
        return at_s - ahead_s(self._clock)

    def update(self, region: str, gangs: Iterable[GangSeen]) -> None:
        """Note which gangs a region has. What it does not have is gone, unless it was lost and may still run."""
        there = {(each.job_id, each.generation): each for each in gangs}
        for each in [each for each in self if each.region == region and each.key not in there]:
            if each.seen is None or not (each.seen.exit and self.may_live(each)):
                self._drop(each.key)
        for key, seen in there.items():
            recorded = self.get(key)
            if recorded is None:
                self._put(self._unrecorded(seen, region))
            else:  # what is stored of it stays the same
                self._of_job[key[0]][key[1]] = replace(recorded, seen=seen, seen_ahead_s=ahead_s(self._clock))

    def forget(self, key: GangKey) -> None:
        """Show a gang whose end is committed no longer, unless it may still run.

        Its record goes once its region does not show it: a region that has not heard of this may do so again.
        """
        gang = self.get(key)
        if gang is not None and not self.may_live(gang):
            self._of_job[key[0]][key[1]] = replace(gang, is_forgotten=True)

    def store(self) -> None:
        """Write what has changed, for the next service. Raises OSError."""
        if not self._is_stored:
            machine.write_json(
                str(self._path), {"boot_id": machine.boot_id(), "gangs": [_record(each) for each in self]}
            )
            self._is_stored = True

    def unheard(self, gang: Whereabout) -> GangSeen:
        """Return a gang as it was last seen, without the reports that were handed over then."""
        return gang.unheard(ahead_s(self._clock))

    def lost(self, gang: Whereabout, why: str) -> GangSeen:
        """Return a gang of a region that does not answer as ended: its lease is over."""
        message = f"region {gang.region} cannot be reached, and the lease of the gang there is over: {why}"
        return replace(
            self.unheard(gang),
            state=GangState.ENDED,
            ended_at_s=gone_by_s(gang.until_s, self._grace_s) + ahead_s(self._clock),
            exit=GangExit(outcome=GangOutcome.LOST, message=message),
            is_silent=True,
        )

    def _unrecorded(self, seen: GangSeen, region: str) -> Whereabout:
        """Return a gang that a region has and nobody has noted.

        The lease of a lost one that is in no stored round was over before the oldest of these began.
        """
        has_ended = seen.state is GangState.ENDED
        may_run_s = self._may_run_s.get((seen.job_id, seen.generation), 0.0 if has_ended else None)
        until_s = self._clock.steady_s() + UNTOLD_LEASE_S if may_run_s is None else self._opened_s + may_run_s
        return Whereabout(
            job_id=seen.job_id,
            generation=seen.generation,
            region=region,
            accelerator_type=seen.accelerator_type,
            worker_ids=seen.worker_ids,
            until_s=until_s,
            wall_until_s=until_s + ahead_s(self._clock),
            seen=seen,
            seen_ahead_s=ahead_s(self._clock),
        )

    def _put(self, gang: Whereabout) -> None:
        self._of_job.setdefault(gang.job_id, {})[gang.generation] = gang
        self._is_stored = False

    def _drop(self, key: GangKey) -> None:
        own = self._of_job[key[0]]
        del own[key[1]]
        if not own:
            del self._of_job[key[0]]
        self._is_stored = False


def _record(gang: Whereabout) -> list[object]:
    until = gang.until_s, gang.wall_until_s
    return [gang.job_id, gang.generation, gang.region, gang.accelerator_type, [*gang.worker_ids], *until]


def _stored(path: Path) -> tuple[str, list[Whereabout]]:
    """Return the start of the machine since which the steady clock counts, and the gangs."""
    stored: list[Whereabout] = []
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = machine.read_json(str(path), FILE_BYTES)
        for job_id, generation, region, kind, worker_ids, until_s, wall_until_s in record["gangs"]:
            gang = Whereabout(
                job_id=job_id,
                generation=generation,
                region=region,
                accelerator_type=kind,
                worker_ids=tuple(worker_ids),
                until_s=float(until_s),
                wall_until_s=float(wall_until_s),
            )
            stored.append(gang)
        return str(record["boot_id"]), stored
    return "", stored
