"""Nodes: list them, and take them out of service and back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from api.access.auth import NodeReader, OperatorOrNode, may_see
from api.http.errors import documented, problem
from api.routes.operations import OPERATION, Prefer, answer, ask
from api.routes.parameters import NodePath
from api.schemas.operations import DrainRequest, NodeList, NodeView, OperationView
from api.services import Services, ServicesDep
from api.views.jobs_and_rounds import leases_in_force
from gavel.errors import first_few
from gavel.types import Identity, JobId, Node, NodeStatus

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])

ERRORS = documented(400, 401, 403, 404, 409, 413, 422, 503)


@router.get("", operation_id="list_nodes", responses=documented(401, 403, 503))
def list_nodes(caller: NodeReader, services: ServicesDep) -> NodeList:
    """Every node as of the scheduler's last tick. Nodes that went away are listed as lost for a day."""
    shown = _shown(services, caller)
    return NodeList(items=[shown.view(node) for node in services.store.nodes()])


@router.get("/{name}", operation_id="get_node", responses=documented(401, 403, 404, 422, 503))
def get_node(name: NodePath, caller: NodeReader, services: ServicesDep) -> NodeView:
    """One node."""
    node = next((node for node in services.store.nodes() if node.name == name), None)
    if node is None:
        raise problem(404, f"no node {name}")
    return _shown(services, caller).view(node)


@router.post("/{name}/cordon", status_code=202, operation_id="cordon_node", responses=OPERATION | ERRORS)
async def cordon(
    name: NodePath, response: Response, caller: OperatorOrNode, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Give no new leases on the node; gangs there run until their leases end. 409 while the node is being drained."""
    return await _command("node.cordon", name, {}, response, caller, services, prefer)


@router.post("/{name}/uncordon", status_code=202, operation_id="uncordon_node", responses=OPERATION | ERRORS)
async def uncordon(
    name: NodePath, response: Response, caller: OperatorOrNode, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Give leases on the node again. This ends a drain, too."""
    return await _command("node.uncordon", name, {}, response, caller, services, prefer)


@router.post("/{name}/drain", status_code=202, operation_id="drain_node", responses=OPERATION | ERRORS)
async def drain(
    name: NodePath,
    body: DrainRequest,
    response: Response,
    caller: OperatorOrNode,
    services: ServicesDep,
    prefer: Prefer = None,
) -> OperationView:
    """Empty the node within a window. Gangs leave at the end of their leases; no lease outlives the window.

    Gangs of non-preemptible jobs, and all that are left when the window ends, checkpoint and stop before its end. The
    node is `drained` when nothing runs there.
    """
    return await _command("node.drain", name, {"window_s": body.window_s}, response, caller, services, prefer)


async def _command(
    kind: str,
    name: str,
    body: Mapping[str, Any],
    response: Response,
    caller: Identity,
    services: Services,
    prefer: str | None,
) -> OperationView:
    names = {node.name for node in await run_in_threadpool(services.store.nodes)}
    if name not in names:
        raise problem(404, f"no node {name}; there are {first_few(names)}")
    operation = await ask(services, kind, f"node/{name}", body, caller)
    return await answer(services, operation, response, prefer)


@dataclass(frozen=True, slots=True)
class _Shown:
    """The cluster as last seen, indexed by node, with what a caller may see of it."""

    nodes: Mapping[str, Node]
    workers: Mapping[str, Counter[str]]
    jobs: Mapping[str, list[JobId]]

    def view(self, node: NodeStatus) -> NodeView:
        return NodeView(
            name=node.name,
            state=node.state.value,
            since_s=node.since_s,
            drain_by_s=node.drain_by_s,
            by=node.by,
            region=self.nodes[node.name].region if node.name in self.nodes else None,
            problem=self.nodes[node.name].problem if node.name in self.nodes else "",
            capacity=dict(self.workers.get(node.name, {})),
            jobs=sorted(self.jobs.get(node.name, [])),
        )


def _shown(services: Services, caller: Identity) -> _Shown:
    cluster, jobs = services.store.cluster(), services.store.snapshot().jobs
    workers: dict[str, Counter[str]] = {}
    for worker in cluster.workers:
        workers.setdefault(worker.node, Counter())[worker.accelerator_type] += 1
    node_of = {worker.id: worker.node for worker in cluster.workers}
    holders: dict[str, list[JobId]] = {}
    for job_id, lease in leases_in_force(services.store.rounds(limit=2), jobs).items():
        if may_see(caller, jobs[job_id]):
            for node in {node_of[worker] for worker in lease.worker_ids if worker in node_of}:
                holders.setdefault(node, []).append(job_id)
    return _Shown({node.name: node for node in cluster.nodes}, workers, holders)
