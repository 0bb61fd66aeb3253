"""Tunnels that the service has asked an agent for; for programs of Gavel only."""

from typing import Annotated, cast

from fastapi import APIRouter, Path, WebSocket
from fastapi_problem.error import Problem

from api.access.websockets import bearer_of, refuse
from api.live.tunnels import Tunnels
from gavel.backends.nodes.tunnels import TUNNELS_PATH

router = APIRouter(prefix=TUNNELS_PATH, include_in_schema=False)


@router.websocket("/{tunnel_id}")
async def open_tunnel(websocket: WebSocket, tunnel_id: Annotated[str, Path(max_length=64)]) -> None:
    """Join an agent's connection to that of a user; see `gavel.backends.nodes.tunnels`.

    Refused with 404 without the key of a tunnel that this process waits for.
    """
    try:
        await cast(Tunnels, websocket.app.state.tunnels).serve(websocket, tunnel_id, bearer_of(websocket.headers))
    except Problem as why:
        await refuse(websocket, why)
