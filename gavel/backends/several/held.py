"""Gangs that are not launched yet: an earlier one may run in another region, or their checkpoint is being copied."""

from dataclasses import dataclass, replace

from gavel.backends.gang import GangKey
from gavel.ports import ExtendLease, LaunchGang
from gavel.types import GangExit, GangOutcome, GangSeen, GangState


@dataclass(slots=True, kw_only=True)
class _Held:
    launch: LaunchGang
    why: str
    ended_at_s: float | None = None
    exit: GangExit | None = None
    checkpoint_left: str | None = None


class HeldLaunches:
    """Launches by gang. Each is shown as a gang that waits, and ends with its lease, as on a cluster."""

    def __init__(self) -> None:
        self._held: dict[GangKey, _Held] = {}

    def __contains__(self, key: GangKey) -> bool:
        """Return whether the gang is held."""
        return key in self._held

    def hold(self, launch: LaunchGang, why: str) -> None:
        """Hold a launch; one that is held already stays as it is, with the present reason."""
        held = self._held.setdefault((launch.job_id, launch.generation), _Held(launch=launch, why=why))
        held.why = why

    def extend(self, extension: ExtendLease) -> None:
        """Move the end of a held gang's lease, to a later instant only."""
        held = self._held[extension.job_id, extension.generation]
        until_s = max(held.launch.lease_expires_at_s, extension.expires_at_s)
        held.launch = replace(held.launch, lease_expires_at_s=until_s, shares_with=extension.shares_with)

    def end(
        self, key: GangKey, outcome: GangOutcome, message: str, now_s: float, checkpoint_left: str | None = None
    ) -> None:
        """End a held gang, unless it has ended; `checkpoint_left` as in `GangSeen`."""
        held = self._held[key]
        if held.exit is None:
            held.checkpoint_left = checkpoint_left
            held.exit, held.ended_at_s = GangExit(outcome=outcome, message=message), now_s

    def forget(self, key: GangKey) -> None:
        """Drop a held gang that has ended."""
        if key in self._held and self._held[key].exit is not None:
            del self._held[key]

    def due(self, now_s: float) -> list[LaunchGang]:
        """Return the launches that still wait; those whose lease is over have ended."""
        for key, held in self._held.items():
            if now_s >= held.launch.lease_expires_at_s:
                self.end(key, GangOutcome.PREEMPTED, "its lease ended while it waited", now_s)
        return [held.launch for held in self._held.values() if held.exit is None]

    def release(self, key: GangKey) -> None:
        """Hold a launch no more: it is sent."""
        self._held.pop(key, None)

    def seen(self) -> list[GangSeen]:
        """Return the held gangs as an observation shows them."""
        return [_seen(held) for held in self._held.values()]


def _seen(held: _Held) -> GangSeen:
    launch, has_ended = held.launch, held.exit is not None
    return GangSeen(
        job_id=launch.job_id,
        generation=launch.generation,
        state=GangState.ENDED if has_ended else GangState.WAITING,
        accelerator_type=launch.accelerator_type,
        worker_ids=launch.worker_ids,
        ended_at_s=held.ended_at_s,
        exit=held.exit,
        checkpoint_left=held.checkpoint_left,
        waiting_for="" if has_ended else held.why,
    )
