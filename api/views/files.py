"""The files that a job leaves, as its owner sees them."""

from api.schemas.results import JobFilesView, JobFileView
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
