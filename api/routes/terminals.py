"""The terminal of a job: what is typed and printed, over a WebSocket, as for its ports."""

from fastapi import APIRouter, WebSocket

from api.routes.parameters import JobIdPath
from api.routes.ports import carried

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.websocket("/{job_id}/terminal")
async def attach(websocket: WebSocket, job_id: JobIdPath) -> None:
    """Carry the messages of a running job's terminal (gavel_runtime/terminal_frames.py), in binary messages.

    Refused as a request is, by a problem document: 401, 404 (no job, or no terminal of it), 409 (it does not run), 429.
    """
    await carried(websocket, job_id, None)
