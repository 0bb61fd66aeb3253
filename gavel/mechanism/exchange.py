"""Keeps what has passed between driver and backend, so that no report is lost and no instruction is sent twice."""

from collections.abc import Iterable
from dataclasses import replace

from gavel.mechanism.cluster.reconcile import OWNER, resource_name
from gavel.ports import ExtendLease, Instruction, SetResources
from gavel.types import EphemeralResource, GangSeen, JobId, Observation, Report

GangKey = tuple[JobId, int]
"""Job and generation."""


class Exchange:
    """Reports that the backend handed over and the store does not have yet; extensions that were sent to the backend.

    A backend hands each report over once, so a failed commit must not lose it. The reconciler repeats extensions at
    every tick, and the backend needs each only once. A restart forgets all of this and does no harm: backends hand
    over again what was never committed, and get an extension twice.
    """

    def __init__(self) -> None:
        self._reports: dict[GangKey, tuple[Report, ...]] = {}
        self._extensions: dict[GangKey, ExtendLease] = {}
        self._resources: dict[tuple[str, str, str], EphemeralResource] = {}  # by owner, name and node

    def with_uncommitted(self, seen: Observation) -> Observation:
        """Return the observation with the uncommitted reports put first; they are kept until `committed`."""
        gangs = tuple(self._with_reports(gang) for gang in seen.gangs)
        self._reports = {_key(gang): gang.reports for gang in gangs if gang.reports}
        return replace(seen, gangs=gangs)

    def _with_reports(self, gang: GangSeen) -> GangSeen:
        earlier = self._reports.get(_key(gang))
        return replace(gang, reports=(*earlier, *gang.reports)) if earlier else gang

    def committed(self) -> None:
        """Forget the reports: the store has all that were handed over."""
        self._reports = {}

    def unheard(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Return the instructions without those that were sent to the backend before."""
        return [each for each in instructions if not self._is_heard(each)]

    def _is_heard(self, instruction: Instruction) -> bool:
        match instruction:
            case ExtendLease(job_id=job_id, generation=generation):
                return self._extensions.get((job_id, generation)) == instruction
            case SetResources(resources=resources):
                return all(self._resources.get(_place(each)) == each for each in resources)
        return False

    def heard(self, instructions: Iterable[Instruction], gangs: Iterable[GangSeen]) -> None:
        """Note the instructions that were sent; those for gangs that are no longer there are forgotten."""
        for each in instructions:
            if isinstance(each, ExtendLease):
                self._extensions[each.job_id, each.generation] = each
            elif isinstance(each, SetResources):
                self._resources |= {_place(resource): resource for resource in each.resources}
        keys = {_key(gang) for gang in gangs}
        names = {(OWNER, resource_name(*key)) for key in keys}
        self._extensions = {key: each for key, each in self._extensions.items() if key in keys}
        self._resources = {key: each for key, each in self._resources.items() if key[:2] in names}


def _key(gang: GangSeen) -> GangKey:
    return gang.job_id, gang.generation


def _place(resource: EphemeralResource) -> tuple[str, str, str]:
    return resource.owner, resource.name, resource.node
