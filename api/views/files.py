"""The files that a job leaves, as its owner sees them."""

from collections.abc import Sequence
from dataclasses import asdict

from api.schemas.results import CheckpointsView, CheckpointView, JobFilesView, JobFileView, WrittenCheckpointView
from gavel.backends.checkpoints import CheckpointFolder
from gavel.backends.outputs import Listing
from gavel.config import Settings
from gavel.types import Job


def files_view(listing: Listing, job: Job, settings: Settings) -> JobFilesView:
    """Return the files of a job, what it may keep, and until when."""
    return JobFilesView(
        items=[JobFileView.model_validate(each, from_attributes=True) for each in listing.files],
        total_bytes=sum(each.size_bytes for each in listing.files),
        limit_bytes=settings.output_bytes,
        left_out=listing.left_out,
        is_cut=listing.is_cut,
        kept_until_s=None if job.finished_at_s is None else job.finished_at_s + settings.keep_outputs_s,
    )


def checkpoints_view(folders: Sequence[CheckpointFolder], job: Job) -> CheckpointsView:
    """Return the checkpoints of a job, the accepted one marked."""
    items = [CheckpointView(**asdict(each), is_accepted=each.name == job.checkpoint) for each in folders]
    written = [WrittenCheckpointView(**asdict(each)) for each in reversed(job.checkpoints_written)]
    return CheckpointsView(items=items, accepted=job.checkpoint, written=written)
