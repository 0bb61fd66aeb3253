"""What one region has shown, and whether it can be reached now."""

from collections.abc import Mapping
from dataclasses import replace

from gavel.backends.gang import GangKey
from gavel.backends.several.clock_offset import by_clock
from gavel.backends.several.names import outer, outer_cluster, outer_gang, outer_resources
from gavel.backends.several.region import Region
from gavel.types import Cluster, EphemeralResource, GangSeen, Observation, Report
from gavel.types.regions import RegionStatus


class Link:
    """A region's last observation, with the names of its nodes and workers outside of it.

    It counts as reached for `silent_limit_s` after each answer, so that one slow answer moves no job; `opened_at_s` is
    when the service began to call it.
    """

    def __init__(self, region: Region, backend: str, opened_at_s: float, silent_limit_s: float) -> None:
        self.region = region
        self._backend, self._silent_limit_s = backend, silent_limit_s
        self._heard_at_s = opened_at_s
        self.has_answered = False
        self.cluster = Cluster()
        self.resources: tuple[EphemeralResource, ...] = ()
        self.held: Mapping[tuple[str, str], int] = {}
        self.cordons: Mapping[str, bool] = {}
        self._own_cluster = Cluster()  # as its backend names nodes and workers
        self._gangs: tuple[GangSeen, ...] | None = None  # of an observation that was not merged yet
        self._ahead_s = 0.0  # of the clock by which these were seen

    def is_reached(self, now_s: float) -> bool:
        """Return whether it has answered lately."""
        return self.has_answered and not self._is_silent(now_s)

    def is_awaited(self, now_s: float) -> bool:
        """Return whether it has not answered yet, but may soon."""
        return not self.has_answered and not self._is_silent(now_s)

    def _is_silent(self, now_s: float) -> bool:
        return now_s - self._heard_at_s >= self._silent_limit_s

    def put(self, seen: Observation, now_s: float, ahead_s: float) -> None:
        """Take the observation of its backend; reports of one that was not merged yet are put first.

        `ahead_s`: how far its clock was ahead of the steady one.
        """
        name, self._ahead_s = self.region.name, ahead_s
        self.has_answered, self._heard_at_s = True, now_s
        if seen.cluster is not self._own_cluster:
            self._own_cluster, self.cluster = seen.cluster, outer_cluster(seen.cluster, name)
        self.resources = outer_resources(seen.resources, name)
        self.held = {(full, outer(node, name)): units for (full, node), units in seen.held.items()}
        self.cordons = {outer(node, name): is_cordoned for node, is_cordoned in seen.cordons.items()}
        earlier = {(each.job_id, each.generation): each.reports for each in self._gangs or ()}
        self._gangs = tuple(_with(earlier, outer_gang(each, name)) for each in seen.gangs)

    def take_gangs(self, ahead_s: float) -> tuple[GangSeen, ...] | None:
        """Return the gangs of an observation that was not merged yet, once, by the clock of now; None without one."""
        gangs, self._gangs = self._gangs, None
        return None if gangs is None else tuple(by_clock(each, ahead_s - self._ahead_s) for each in gangs)

    def status(self, now_s: float) -> RegionStatus:
        """Return whether the region can be reached, and if not, why and since when; one that may yet answer can."""
        if self.is_reached(now_s) or self.is_awaited(now_s):
            return RegionStatus(name=self.region.name, backend=self._backend)
        problem = self.region.problem or "it has not answered yet"
        return RegionStatus(name=self.region.name, backend=self._backend, problem=problem, since_s=self._heard_at_s)


def _with(earlier: Mapping[GangKey, tuple[Report, ...]], gang: GangSeen) -> GangSeen:
    """Return the gang with earlier reports put first: each is handed over once."""
    reports = earlier.get((gang.job_id, gang.generation))
    return replace(gang, reports=(*reports, *gang.reports)) if reports else gang
