"""Keeps what has passed between driver and backend, so that no report is lost and no instruction is sent twice."""

from collections.abc import Iterable
from dataclasses import replace

from gavel.mechanism.cluster.reconcile import GangKey
from gavel.ports import ExtendLease, Instruction
from gavel.types import GangSeen, Observation, Report


class Exchange:
    """Reports that the backend handed over and the store does not have yet; extensions that were sent to the backend.

    A backend hands each report over once, so a failed commit must not lose it. It needs each extension only once, and
    the reconciler makes those that are not in `sent`. A restart forgets all of this and does no harm: backends hand
    over again what was never committed, and get an extension twice.
    """

    def __init__(self) -> None:
        self._reports: dict[GangKey, tuple[Report, ...]] = {}
        self.sent: dict[GangKey, ExtendLease] = {}  # the last extension that each gang was sent

    def with_uncommitted(self, seen: Observation) -> Observation:
        """Return the observation with the uncommitted reports put first; they are kept until `committed`."""
        if self._reports:
            seen = replace(seen, gangs=tuple(self._with_reports(gang) for gang in seen.gangs))
        self._reports = {_key(gang): gang.reports for gang in seen.gangs if gang.reports}
        return seen

    def _with_reports(self, gang: GangSeen) -> GangSeen:
        earlier = self._reports.get(_key(gang))
        return replace(gang, reports=(*earlier, *gang.reports)) if earlier else gang

    def committed(self) -> None:
        """Forget the reports: the store has all that were handed over."""
        self._reports = {}

    def heard(self, instructions: Iterable[Instruction], gangs: Iterable[GangSeen]) -> None:
        """Note the extensions that were sent; those of gangs that are no longer there are forgotten."""
        self.sent |= {(each.job_id, each.generation): each for each in instructions if isinstance(each, ExtendLease)}
        for gone in self.sent.keys() - {_key(gang) for gang in gangs}:
            del self.sent[gone]


def _key(gang: GangSeen) -> GangKey:
    return gang.job_id, gang.generation
