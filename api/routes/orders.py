"""Orders of the service to agents on nodes that do not see its folder; for programs of Gavel only."""

from typing import Annotated, cast

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request, WebSocket
from fastapi.responses import FileResponse
from fastapi_problem.error import Problem
from starlette.datastructures import Headers

from api.access.auth import PUBLIC
from api.access.websockets import bearer_of, refuse
from api.http.errors import problem
from api.live.orders import Orders
from api.services import Services
from gavel.backends.nodes.relay import ORDERS_PATH, AgentFiles

router = APIRouter(prefix=ORDERS_PATH, include_in_schema=False)

NamePath = Annotated[str, Path(max_length=300)]


@router.websocket("/{allocation}/{node}")
async def carry_orders(websocket: WebSocket, allocation: NamePath, node: NamePath) -> None:
    """Carry letters to the agent and its replies back; see `gavel.backends.nodes.relay`.

    Refused with 401 without the key of the allocation, and with 410 once the allocation is over.
    """
    app = websocket.app
    try:
        files = await run_sync(_admitted, app.state.services, websocket.headers, allocation, node)
    except Problem as why:
        await refuse(websocket, why)
        return
    await cast(Orders, app.state.orders).serve(websocket, files)


@router.get("/{allocation}/{node}/packs/{pack}", dependencies=[PUBLIC])  # no token of a user, but an agent's key
def read_pack(
    request: Request, allocation: NamePath, node: NamePath, pack: Annotated[str, Path(pattern=r"^[0-9]{1,20}$")]
) -> FileResponse:
    """Return a pack of code that an order names, for as long as it is kept."""
    path = _admitted(request.app.state.services, request.headers, allocation, node).pack(pack)
    if not path.is_file():
        raise problem(404, f"pack {pack} is not kept any more; it is made again when it is asked for")
    return FileResponse(path, media_type="application/octet-stream")


def _admitted(services: Services, headers: Headers, allocation: str, node: str) -> AgentFiles:
    """Return the files of the agent. Raise a 401, 404 or 410 problem."""
    orders = services.settings.orders_dir
    if orders is None:
        raise problem(404, "nodes of this service get their orders in files; see the setting orders")
    files = AgentFiles(orders, allocation, node)
    if files.admits(bearer_of(headers)):
        return files
    if files.are_gone():
        raise problem(410, "this allocation is over; its agent frees the node")
    raise problem(401, "send `Authorization: Bearer KEY` with the key of the allocation")
