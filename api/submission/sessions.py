"""Checks what a submission says of an interactive session, and how much longer one may last."""

from typing import Any

from api.http.errors import invalid
from api.rules import Rules
from api.schemas import JobSubmit
from gavel.types import Job, Tier

DEFAULT_LONGEST_S = 4 * 3600.0
AS_STATED = ("idle_s", "reserved_at_s", "accelerator_share")


def session_of(body: JobSubmit, tier: Tier) -> dict[str, Any]:
    """Return the fields of the specification of a session, with the most seconds that it lasts; {} for another job."""
    if body.mode != "interactive":
        return {}
    longest_s = body.longest_s or min(DEFAULT_LONGEST_S, tier.session_limit_s)
    return {"longest_s": longest_s} | {name: getattr(body, name) for name in AS_STATED}


def check_session(body: JobSubmit, tier: Tier, rules: Rules) -> None:
    """Raise a 422 problem for a session longer than its tier allows, and for what does not go together."""
    for name in ("longest_s", "idle_s", "reserved_at_s"):
        if body.mode != "interactive" and getattr(body, name) is not None:
            raise invalid(name, "only an interactive session has it; add mode: interactive, or leave it out")
    if body.mode == "interactive" and body.total_steps is not None:
        raise invalid("total_steps", "an interactive session ends by its time; leave it out, or submit a batch job")
    if body.longest_s is not None and body.longest_s > tier.session_limit_s:
        raise invalid("longest_s", f"{body.longest_s:g} is too long; {_most(tier)}")
    if body.idle_s is not None and not rules.sees_use:
        why = f"backend {rules.backend} does not see whether a session is used"
        raise invalid("idle_s", f"{why}; state longest_s instead")
    if body.accelerator_share < 1 and body.mode != "interactive":
        raise invalid("accelerator_share", "only an interactive session has it; add mode: interactive, or leave it out")
    if body.accelerator_share < 1 and body.reserved_at_s is not None:
        raise invalid("accelerator_share", "reserved workers are whole; leave it out, or reserved_at_s")
    if body.reserved_at_s is not None and body.after:
        raise invalid("after", "a session that is reserved starts at its time; leave one of them out")


def check_extension(job: Job, by_s: float, tier: Tier) -> float:
    """Return how many seconds the session lasts with `by_s` more. Raise a 422 problem if it may not."""
    if job.spec.longest_s is None:
        raise invalid("by_s", f"job {job.id} is no interactive session, so it has no end to move")
    longest_s = job.spec.longest_s + by_s
    if longest_s > tier.session_limit_s:
        left_s = max(0.0, tier.session_limit_s - job.spec.longest_s)
        raise invalid("by_s", f"{longest_s:g} s would be too long; {_most(tier)}, so at most {left_s:g} s more")
    return longest_s


def _most(tier: Tier) -> str:
    most_s = tier.session_limit_s
    return f"a session in tier {tier.name} may last {most_s:g} s ({most_s / 3600:g} h)"
