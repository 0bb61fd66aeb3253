"""Ephemeral resources of applications (ESCHER, SoCC '22, section 4): what is wanted, against what a cluster has.

The store keeps what is wanted, the backend has what is there. Level triggered like `reconcile`: a node that comes back,
or a backend that started anew, is told again what is still leased; what nobody wants any more is deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gavel.ports import SetResources
from gavel.types import ApplicationResource, EphemeralResource, Job, JobId, Observation

SCHEDULER_OWNER = "gavel"

Resources = tuple[ApplicationResource, ...]


def look(known: Resources, seen: Observation, jobs: Mapping[JobId, Job]) -> Resources:
    """What is still wanted, with the units held as of this observation: leases that are over and jobs that ended go."""
    return tuple(
        replace(each, held=_held(each.resource, seen))
        for each in known
        if each.resource.lease_expires_at_s > seen.observed_at_s and (each.job_id is None or each.job_id in jobs)
    )


def instructions(wanted: Resources, seen: Observation) -> Sequence[SetResources]:
    """What brings the cluster's names to what is wanted, in one batch; none if they are so already."""
    there = {(each.owner, each.name, each.node): each for each in seen.resources if each.owner != SCHEDULER_OWNER}
    nodes = {node.name for node in seen.cluster.nodes}
    missing = [
        each.resource
        for each in wanted
        if each.resource.node in nodes and not _is_there(each.resource, there.get(each.key))
    ]
    leaked = [there[key] for key in there.keys() - {each.key for each in wanted}]
    batch = (*missing, *(replace(each, capacity=0, generation=each.generation + 1) for each in leaked))
    return [SetResources(resources=batch)] if batch else []


def _is_there(wanted: EphemeralResource, found: EphemeralResource | None) -> bool:
    """A newer word than ours is not ours to repeat."""
    if found is None or found.generation < wanted.generation:
        return False
    return found.generation > wanted.generation or found.lease_expires_at_s >= wanted.lease_expires_at_s


def _held(resource: EphemeralResource, seen: Observation) -> int:
    return seen.held.get((f"{resource.owner}/{resource.name}", resource.node), 0)
