"""Compares the ephemeral resources that applications want (ESCHER, SoCC '22, section 4) with those of the cluster.

The store has the resources that are wanted, the backend those that exist. Level triggered like `reconcile`: a node
that comes back, or a backend that was started again, gets what is still leased; what nobody wants any more is deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gavel.ports import SetResources
from gavel.types import ApplicationResource, EphemeralResource, Job, JobId, Observation

SCHEDULER_OWNER = "gavel"

Resources = tuple[ApplicationResource, ...]


def look(stored: Resources, seen: Observation, jobs: Mapping[JobId, Job]) -> Resources:
    """Return the resources that are still wanted, with the units held as of this observation.

    Those whose lease is over, or whose job has ended, are left out.
    """
    return tuple(
        replace(each, held=_held(each.resource, seen))
        for each in stored
        if each.resource.lease_expires_at_s > seen.observed_at_s and (each.job_id is None or each.job_id in jobs)
    )


def instructions(wanted: Resources, seen: Observation) -> Sequence[SetResources]:
    """Return the instruction, one batch, that makes the cluster's resources those that are wanted; none if they are."""
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


def _is_there(wanted: EphemeralResource, existing: EphemeralResource | None) -> bool:
    """True if the cluster has the resource with this generation and a lease at least as long, or a newer generation."""
    if existing is None or existing.generation < wanted.generation:
        return False
    return existing.generation > wanted.generation or existing.lease_expires_at_s >= wanted.lease_expires_at_s


def _held(resource: EphemeralResource, seen: Observation) -> int:
    return seen.held.get((f"{resource.owner}/{resource.name}", resource.node), 0)
