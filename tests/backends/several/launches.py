"""Launches of gangs on the clusters of `links.py`."""

from gavel.backends.several.names import outer
from gavel.ports import Instruction, LaunchGang, SetResources
from gavel.simulator.cluster import program
from gavel.types import EphemeralResource
from tests.backends.several.links import GRACE_S


def gang(job: int, generation: int, region: str, until_s: float) -> list[Instruction]:
    """The launch of a job's gang on its worker in a region, and the resource that it requires."""
    name, worker = f"gang-j{job}-{generation}", outer(f"a-{job}", region)
    resource = EphemeralResource(
        name=name,
        node=outer(f"node-{job}", region),
        capacity=1,
        owner="gavel",
        lease_expires_at_s=until_s + GRACE_S,
        generation=generation,
    )
    launch = LaunchGang(
        job_id=f"j{job}",
        generation=generation,
        user="ann",
        argv=program("trains"),
        env={},
        accelerator_type=f"a@{region}",
        worker_ids=(worker,),
        resource=f"gavel/{name}",
        lease_expires_at_s=until_s,
        start_step=0,
        total_steps=10**9,
        checkpoint=None,
    )
    return [SetResources(resources=(resource,)), launch]
