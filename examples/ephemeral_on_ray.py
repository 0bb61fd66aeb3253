"""Libraries of ephemeral resources in an application on Ray, without the service: `python ephemeral_on_ray.py`.

One task a node by anti-affinity, then two tasks together on any one node. Joins the cluster that RAY_ADDRESS names.
"""

import ray

from gavel.backends.ray.primitives import RayPrimitives
from gavel.ephemeral.libraries.anti_affinity import AntiAffinity
from gavel.ephemeral.libraries.co_location import CoLocation

ray.init(log_to_driver=False, logging_level="ERROR")


@ray.remote(num_cpus=0)
def where() -> str:
    """The node that this task runs on."""
    return ray.get_runtime_context().get_node_id()


cluster = RayPrimitives(owner="app")
nodes = len(cluster.get_cluster_state())

apart = AntiAffinity("app/apart")
apart.apply(cluster)
with cluster.placed(apart, tasks=nodes) as places:
    found = ray.get([where.options(scheduling_strategy=place).remote() for place in places])
print(f"apart: {nodes} tasks on {len(set(found))} nodes")

together = CoLocation("app/together", {"node/cpu": 1}, tasks=2)
together.apply(cluster)
with cluster.placed(together, needs={"node/cpu": 1}, tasks=2) as places:
    found = ray.get([where.options(scheduling_strategy=place).remote() for place in places])
print(f"together: 2 tasks on {len(set(found))} node")
