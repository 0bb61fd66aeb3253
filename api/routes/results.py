"""What jobs leave: the curves of the metrics that they report, files and checkpoints; and what their code was."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.access.auth import AnyCaller, visible_job
from api.http.errors import documented, problem
from api.http.files import HEADERS, OpenFileResponse, stored_file_response
from api.routes.parameters import JobIdPath
from api.schemas.code import CodeDiffView
from api.schemas.results import CheckpointsView, JobFilesView, JobMetricsView, JobUtilizationView
from api.services import ServicesDep
from api.views.files import checkpoints_view, files_view
from api.views.metrics import metrics_view
from api.views.utilization import utilization_view
from gavel.backends.folder import log_path
from gavel.backends.nodes.stored_outputs import StoredFile
from gavel.backends.utilization import read_utilization
from gavel.code_tree import CUT_LINE
from gavel.errors import NotFound

router = APIRouter(prefix="/v1/jobs", tags=["results"])

BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes of the file.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {"description": "The bytes that the header Range asked for."},
}
TAR: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A tar archive of the checkpoint's files.",
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
    }
}
CheckpointPath = Annotated[str, Path(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$", description="A checkpoint's name.")]
FilePath = Annotated[str, Query(max_length=4096, description="Below the output folder, with slashes.")]


@router.get("/{job_id}/metrics", operation_id="get_metrics", responses=documented(401, 403, 404, 422, 503))
def get_metrics(
    job_id: JobIdPath,
    caller: AnyCaller,
    services: ServicesDep,
    points: Annotated[int, Query(ge=2, le=1001, description="Most points in the answer, evenly chosen.")] = 500,
) -> JobMetricsView:
    """All metrics that the job has reported, over its steps and leases.

    Up to 1,000 steps every report is kept, after that one for each 2 steps, from 2,000 steps on one for each 4, and so
    on; the first and the newest always.
    """
    visible_job(services, caller, job_id)
    return metrics_view(services.store.metric_points(job_id), points)


@router.get("/{job_id}/utilization", operation_id="get_utilization", responses=documented(401, 403, 404, 422, 503))
def get_utilization(
    job_id: JobIdPath,
    caller: AnyCaller,
    services: ServicesDep,
    points: Annotated[int, Query(ge=2, le=1001, description="Most samples of a rank, evenly chosen.")] = 500,
) -> JobUtilizationView:
    """CPU cores and memory of each rank of the job over time, sampled every ten seconds; more seldom in long jobs."""
    visible_job(services, caller, job_id)
    return utilization_view(read_utilization(log_path(services.settings.state_dir, job_id)), points)


@router.get("/{job_id}/files", operation_id="list_files", responses=documented(401, 403, 404, 422, 503))
def list_files(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> JobFilesView:
    """The files that the job has written to its output folder, `job.output_dir`."""
    job = visible_job(services, caller, job_id)
    return files_view(services.outputs.listing(job_id), job, services.settings)


@router.get(
    "/{job_id}/files/content",
    operation_id="get_file",
    response_class=Response,
    responses=BYTES | documented(401, 403, 404, 422, 503),
)
def get_file(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep, path: FilePath, request: Request) -> Response:
    """One file of the output folder, whole or the bytes that the header Range names (416: it has no such bytes)."""
    visible_job(services, caller, job_id)
    opened, name = services.outputs.open(job_id, path), path.rpartition("/")[2]
    if isinstance(opened, StoredFile):
        return stored_file_response(opened, name, request.headers.get("Range", ""))
    return OpenFileResponse(opened, name)


@router.get("/{job_id}/checkpoints", operation_id="list_checkpoints", responses=documented(401, 403, 404, 422, 503))
def list_checkpoints(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> CheckpointsView:
    """The checkpoints of the job that are kept; it goes on from the accepted one."""
    job = visible_job(services, caller, job_id)
    return checkpoints_view(services.checkpoints.listing(job_id), job)


@router.get(
    "/{job_id}/checkpoints/{checkpoint}",
    operation_id="get_checkpoint",
    response_class=Response,
    responses=TAR | documented(401, 403, 404, 422, 503),
)
def get_checkpoint(job_id: JobIdPath, checkpoint: CheckpointPath, caller: AnyCaller, services: ServicesDep) -> Response:
    """A checkpoint as a tar archive of its regular files."""
    visible_job(services, caller, job_id)
    archive = services.checkpoints.tar(job_id, checkpoint)
    named = {"Content-Disposition": f'attachment; filename="{job_id}-{checkpoint}.tar"'}
    return StreamingResponse(archive, media_type="application/x-tar", headers=HEADERS | named)


@router.get("/{job_id}/diff", operation_id="get_code_diff", responses=documented(401, 403, 404, 422, 503))
def get_code_diff(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> CodeDiffView:
    """How the job's code differs from its commit; kept as long as the code itself."""
    version = visible_job(services, caller, job_id).spec.code
    if version is None:
        raise problem(404, f"job {job_id} runs in a folder of its node, of which no version is stored")
    if version.is_modified and not version.diff:
        raise problem(404, "whoever submitted the job did not send how its files differ from the commit")
    try:
        text = services.code.diff(version.diff) if version.diff else b""
    except NotFound:
        days = services.settings.keep_code_s / 86_400
        raise problem(404, f"it was deleted {days:.0f} days after the code's last use (keep_code_s)") from None
    return CodeDiffView(commit=version.commit, text=text.decode("utf-8", "replace"), is_cut=text.endswith(CUT_LINE))
