"""Which fields of a submission were changed that no job can change once it is there."""

from collections.abc import Collection
from typing import Any

from api.schemas import JobPatch, JobSubmit
from api.submission.inference import service_of, stated_service
from api.submission.plans import as_stored
from api.submission.resubmission import stated
from gavel.types import JobSpec

CHOSEN_BY_SERVICE = {"tier", "longest_s"}
"""Fields that the service fills if a submission leaves them out."""


def changed_fixed_fields(body: JobSubmit, spec: JobSpec, catalogue: Collection[str]) -> list[str]:
    """Return the fields in which `body` is not the submission of the job, other than those that may be edited."""
    before, after = stated(spec, catalogue), body.model_dump()
    before["code"] = before["code"] and before["code"].model_dump()
    if body.service is not None:  # with what the service chose
        after["service"] = stated_service(service_of(body.service))
    after["plans"] = as_stored(body.plans, spec.possible_sizes)
    if body.argv is not None:  # a kind of the catalogue brings it, and a submission may repeat it
        before["argv"] = list(spec.argv)
    if spec.mode == body.mode != "batch":  # which says that it is not preempted
        before["preemptible"] = body.preemptible
    fixed = [name for name in JobSubmit.model_fields if name not in JobPatch.model_fields]
    return [name for name in fixed if not _is_same(name, before[name], after[name])]


def _is_same(name: str, before: Any, after: Any) -> bool:
    if after is None and name in CHOSEN_BY_SERVICE:
        return True
    if name == "sizes":
        return bool(sorted(set(after)) == before)
    if isinstance(after, list) and name not in ("argv", "plans"):  # what stands twice in it is stored once
        return bool(list(dict.fromkeys(after)) == list(dict.fromkeys(before or [])) and before is not None)
    return bool(before == after)
