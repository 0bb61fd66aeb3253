"""What the end of a gang says about its accelerator type: the job does not fit there, and goes on elsewhere.

Programs are not trusted. A mark holds for jobs of the same user, kind and size only, a user has few of them, and a gang
that shared its accelerators with another job, whose memory may have been the cause, marks nothing.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gavel.types import EXCLUDED, GangExit, GangOutcome, InfeasibleType, Job
from gavel.types.needs import both_types

MARKS_PER_USER_MAX = 200  # the newest
EVIDENCE_CHARACTERS_MAX = 200
KILLED_FOR_MEMORY = "killed by the kernel, which was out of memory"  # as backends/machine.py words it
SIGNS = re.compile(
    "|".join(
        (
            r"\bCannotRunHere: ",  # gavel_runtime
            r"(CUDA|HIP|ROCm|XPU|MPS backend)[^\n]{0,40}out of memory",
            r"torch\.(cuda\.)?OutOfMemoryError",
            r"\bOutOfMemoryError\b.{0,20}\b(CUDA|HIP|XPU)",
            r"\b(CUDA_ERROR|CUBLAS_STATUS|CUDNN_STATUS)_(OUT_OF_MEMORY|ALLOC_FAILED)",
            r"\bhipErrorOutOfMemory\b|\bcudaErrorMemoryAllocation\b|\bNCCL\b.{0,60}out of memory",
            r"\bRESOURCE_EXHAUSTED\b.{0,80}(memory|allocat|OOM)",
            r"\bOOM when allocating tensor\b",
            r"Allocator \([^)\n]{1,40}\) ran out of memory",
            r"\bcupy\.\S{0,40}OutOfMemoryError\b",
            r"\bDefaultCPUAllocator: (not enough memory|can't allocate memory)",
            r"\bthrowing an instance of 'std::bad_alloc'",
            r"^(\S{1,60}\._Array)?MemoryError\b",
            KILLED_FOR_MEMORY,
        )
    )
)


def evidence_of(end: GangExit) -> str:
    """Return the last line that says the program does not fit where it ran; "" if none does, or it did not fail."""
    if end.outcome is not GangOutcome.EXITED or end.exit_code == 0:
        return ""
    lines = [*end.log_tail.splitlines(), end.message]
    matches = (line for line in reversed(lines) if SIGNS.search(line[:2000]))
    line = "".join(each if each.isprintable() else " " for each in next(matches, "")[:2000])
    return line.strip()[:EVIDENCE_CHARACTERS_MAX]


def failure_under_plan(job: Job, end: GangExit, known_plans: Collection[str]) -> str:
    """Return the evidence that a job does not run under the plan of its gang; "" if there is none.

    The gang failed before its first report. The one that reported last had another plan: most often its checkpoint
    could not be loaded. Or the job has not run yet, and of its plans only others are among `known_plans`, which were
    measured with other jobs of the kind: then its first gang was to try this one.
    """
    if end.outcome is not GangOutcome.EXITED or end.exit_code == 0 or job.has_reported:
        return ""
    others = {job.plan_trained} if job.plan_trained else set(known_plans)
    if not others or job.plan in others:
        return ""
    lines = [line.strip() for line in end.log_tail.splitlines() if line.strip()]
    last = "".join(each if each.isprintable() else " " for each in (lines[-1:] or [end.message])[0])
    why = f"it failed before its first step, after plan {min(others)} had run: "
    room = EVIDENCE_CHARACTERS_MAX - len(why)
    return why + (last if len(last) <= room else f"…{last[1 - room :]}")  # what went wrong is at the end, behind paths


def is_of_kernel(evidence: str) -> bool:
    """Return True if the evidence is a kill by the kernel, which may have been caused by any program of the node."""
    return KILLED_FOR_MEMORY in evidence


def marked(marks: Sequence[InfeasibleType], new: InfeasibleType) -> tuple[InfeasibleType, ...]:
    """Return the marks with one more; it replaces the same one, and the oldest of its user beyond the limit."""
    others = [each for each in marks if each.id != new.id]
    own = sorted((each for each in others if each.user == new.user), key=lambda each: each.at_s)
    too_many = {each.id for each in own[: max(0, len(own) + 1 - MARKS_PER_USER_MAX)]}
    return (*(each for each in others if each.id not in too_many), new)


def marks_of(job: Job, marks: Iterable[InfeasibleType]) -> list[InfeasibleType]:
    """Return the marks that hold for the job."""
    key = job.spec.user, job.spec.kind, job.spec.scale_factor
    return [each for each in marks if (each.user, each.kind, each.scale_factor) == key]


def ruled_out(jobs: Iterable[Job], marks: Sequence[InfeasibleType]) -> list[Job]:
    """Return the jobs as rounds see them: types on which they do not fit, or on which the plan in force does not hold,
    are excluded as if their users had said so.
    """
    types: dict[tuple[str, str, int], list[str]] = {}
    for mark in marks:
        types.setdefault((mark.user, mark.kind, mark.scale_factor), []).append(f"{EXCLUDED}{mark.accelerator_type}")
    where = [_where_its_plan_holds(job) if job.spec.plans else job for job in jobs]
    return [_without(job, types) for job in where] if marks else where


def _where_its_plan_holds(job: Job) -> Job:
    spec, plan = job.spec, job.spec.plan_in_force
    if plan is None or not (plan.accelerator_types or plan.accelerator_memory_bytes):
        return job
    return replace(
        job,
        spec=replace(
            spec,
            accelerator_types=both_types(spec.accelerator_types, plan.accelerator_types),
            accelerator_memory_bytes=max(spec.accelerator_memory_bytes, plan.accelerator_memory_bytes),
        ),
    )


def _without(job: Job, types: Mapping[tuple[str, str, int], list[str]]) -> Job:
    spec = job.spec
    excluded = types.get((spec.user, spec.kind, spec.scale_factor))
    if excluded is None:
        return job
    return replace(job, spec=replace(spec, accelerator_types=(*spec.accelerator_types, *excluded)))
