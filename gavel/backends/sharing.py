"""Checks that a gang's throughput was measured while its cores were as busy as the allocation intends.

Two workers may share a core. A gang whose neighbour idles runs up to twice as fast as it would by the allocation, so
such measurements do not count.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.gang import GangKey
from gavel.types import WorkerId


class CoreSharing:
    """Remembers, per gang, whether a neighbour on its cores was idle since the gang's last reports."""

    def __init__(self, accelerators: Sequence[LocalAccelerator]) -> None:
        on_core = defaultdict[int, list[WorkerId]](list)
        for each in accelerators:
            for cpu in each.cpus:
                on_core[cpu].append(each.worker.id)
        self._neighbours = {
            each.worker.id: tuple(
                dict.fromkeys(other for cpu in each.cpus for other in on_core[cpu] if other != each.worker.id)
            )
            for each in accelerators
        }
        self._holders: dict[WorkerId, set[GangKey]] = {}
        self._disturbed: set[GangKey] = set()

    def look(self, holders: Iterable[tuple[WorkerId, GangKey]]) -> None:
        """Take the gangs that hold each worker now (two for a packed pair).

        A neighbour whose worker changed hands since the last look was idle in between.
        """
        before, now = self._holders, defaultdict[WorkerId, set[GangKey]](set)
        for worker, gang in holders:
            now[worker].add(gang)
        self._holders = now
        for worker, gang in {(at, each) for view in (before, now) for at in view for each in view[at]}:
            is_new = gang not in before.get(worker, ())
            for neighbour in self._neighbours.get(worker, ()):
                was, is_ = before.get(neighbour, set()), now.get(neighbour, set())
                if gang not in was | is_ and (not is_ or (was != is_ and not is_new)):
                    self._disturbed.add(gang)

    def mark_disturbed(self, gang: GangKey, workers: Sequence[WorkerId]) -> None:
        """Distrust this gang's next reports if it has neighbours: nobody observed them for a while."""
        neighbours = {other for worker in workers for other in self._neighbours.get(worker, ())}
        if neighbours - set(workers):
            self._disturbed.add(gang)

    def mark_loaded(self, workers: Iterable[WorkerId]) -> None:
        """Distrust the next reports of gangs on the cores of these workers: programs load there before their lease."""
        for worker in workers:
            for each in (worker, *self._neighbours.get(worker, ())):
                self._disturbed |= self._holders.get(each, set())

    def take(self, gang: GangKey) -> bool:
        """Return True if no neighbour was idle since the last call; a new window begins."""
        is_clean = gang not in self._disturbed
        self._disturbed.discard(gang)
        return is_clean
