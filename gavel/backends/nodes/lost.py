"""Parts of gangs on nodes that the cluster has lost. They may still run, so no newer gang of the job starts yet.

A node that is cut off ends its gangs with their leases. Until then, or until the node is back and reports that it has
ended them, a second gang of the job would run at the same time.
"""

from collections.abc import Collection
from pathlib import Path

from gavel.backends import machine
from gavel.backends.gang import GangKey
from gavel.types import JobId

FILE = "lost.json"


class LostParts:
    """Until when each lost part may still run, by (job, generation, node), in boottime seconds; stored in files."""

    def __init__(self, gangs: Path, now_s: float) -> None:
        self._gangs = gangs
        self._until_s: dict[tuple[JobId, int, str], float] = {}
        for path in gangs.glob(f"*/{FILE}"):
            for generation, node, until_at_s in _parts_in(path):
                until_s = machine.boottime_s() + until_at_s - now_s
                self._until_s[path.parent.name, generation, node] = until_s

    def add(self, key: GangKey, node: str, until_boottime_s: float, now_s: float) -> None:
        """Store that this part may run on the node until then. Raises OSError."""
        self._until_s[*key, node] = until_boottime_s
        self._write(key[0], now_s)

    def heard(self, node: str, running: Collection[GangKey], now_s: float) -> None:
        """Take the report of a node that is back: only the `running` parts still run. Raises OSError."""
        over = [each for each in self._until_s if each[2] == node and each[:2] not in running]
        for each in over:
            del self._until_s[each]
            self._write(each[0], now_s)

    def may_run(self, key: GangKey) -> str:
        """Return the node on which an older gang of the job may still run; "" if there is none."""
        now_s = machine.boottime_s()
        live = (
            node
            for (job, generation, node), until_s in self._until_s.items()
            if job == key[0] and generation < key[1] and until_s > now_s
        )
        return next(live, "")

    def _write(self, job_id: JobId, now_s: float) -> None:
        """Write the job's lost parts, without those that are over by now."""
        boottime_s = machine.boottime_s()
        parts = [
            (generation, node, now_s + until_s - boottime_s)
            for (job, generation, node), until_s in self._until_s.items()
            if job == job_id and until_s > boottime_s
        ]
        folder = self._gangs / job_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        machine.write_json(str(folder / FILE), {"parts": parts})


def _parts_in(path: Path) -> list[tuple[int, str, float]]:
    """Return generation, node and instant of each lost part in a file; none if it is not one that a service wrote."""
    try:
        parts = (machine.read_object(path) or {"parts": []})["parts"]
        return [(int(generation), str(node), machine.finite(until_s)) for generation, node, until_s in parts]
    except (ValueError, TypeError, KeyError, OverflowError):
        return []
