"""What both stores hold to: job ids that sort by time, and the checks a write has to pass."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gavel.errors import InvalidRequest, InvariantViolated, NotFound, StaleVersion
from gavel.types import JobId, JobState, RoundPlan, Tier, User

DEFAULT_TIER = Tier(name="default")
KEEP_ROUNDS = 2000
ACTIVE = tuple(state for state in JobState if not state.is_terminal)
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: in the order of its characters, no i, l, o, u


class JobIds:
    """Makes ids of 16 characters `[0-9a-z]`: 48 bits of milliseconds, 32 random bits; growing within a process."""

    def __init__(self, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._random_bits = random_bits
        self._last = -1

    def next(self, now_s: float) -> JobId:
        """A new id, above every earlier one even when the clock stood still or went back."""
        milliseconds = min(max(int(now_s * 1000), 0), 2**48 - 1)
        self._last = max(self._last + 1, milliseconds << 32 | self._random_bits(32))
        return "".join(_BASE32[self._last >> shift & 31] for shift in range(75, -5, -5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The part of a job that may only move forward."""

    state: JobState
    token: int
    steps_done: int
    total_steps: int


def check_progress(job_id: JobId, before: Progress, after: Progress) -> None:
    """Invariants I5 and I7: token and steps done never fall, no more steps than wanted, an ended job stays ended."""
    if before.state.is_terminal and after.state is not before.state:
        raise InvariantViolated("terminal_is_final", f"job {job_id} is {before.state} and cannot become {after.state}")
    if after.token < before.token:
        raise InvariantViolated("tokens_grow", f"token of job {job_id} would fall from {before.token} to {after.token}")
    if not before.steps_done <= after.steps_done <= before.total_steps:
        raise InvariantViolated(
            "progress_grows",
            f"steps done of job {job_id} would go from {before.steps_done} to {after.steps_done} "
            f"of {before.total_steps}",
        )


def check_round(plan: RoundPlan, newest: int) -> None:
    """Invariant I8: the plan follows the newest stored round (0: none yet), else somebody else planned it first."""
    if plan.parent_round_index != newest or plan.round_index != newest + 1:
        raise StaleVersion(
            f"round {plan.round_index} after {plan.parent_round_index} cannot follow the newest stored round {newest}: "
            "take a new snapshot and plan again"
        )


def next_tier(tier: Tier, stored: Mapping[str, Tier], expected_version: int | None) -> int:
    """The version that `tier` gets; raises StaleVersion, NotFound (parent) or InvalidRequest (cycle, guarantees)."""
    current = stored[tier.name].version if tier.name in stored else None
    if current != expected_version:
        raise StaleVersion(f"tier {tier.name} is at version {current}, not {expected_version}: read it again")
    others = {name: other for name, other in stored.items() if name != tier.name}
    ancestor = tier.parent
    while ancestor is not None:
        if ancestor == tier.name:
            raise InvalidRequest("parent", f"tier {tier.name} would be its own ancestor; choose another parent")
        if ancestor not in others:
            raise NotFound(f"tier {tier.name} names the parent {ancestor}, which does not exist; create it first")
        ancestor = others[ancestor].parent
    guaranteed = tier.guarantee + sum(other.guarantee for other in others.values() if other.parent == tier.parent)
    if guaranteed > 1 + 1e-9:
        raise InvalidRequest("guarantee", f"siblings would be promised {guaranteed:g} in all; lower one to reach 1")
    return (current or 0) + 1


def check_user(user: User, tiers: Mapping[str, Tier]) -> None:
    """Raises InvalidRequest for a user without tiers, NotFound for an unknown tier."""
    if not user.tiers:
        raise InvalidRequest("tiers", f"user {user.name} needs at least one tier; the first is the default")
    for tier in user.tiers:
        if tier not in tiers:
            raise NotFound(f"no tier {tier}; there are: {', '.join(sorted(tiers))}")


def check_limit(limit: int, most: int) -> None:
    """Raises InvalidRequest unless 1 <= limit <= most."""
    if not 1 <= limit <= most:
        raise InvalidRequest("limit", f"{limit} is not between 1 and {most}")


def check_token_hash(token_hash: str) -> None:
    """Raises InvalidRequest unless this is a SHA-256 in hex: a token itself is never stored."""
    if len(token_hash) != 64 or set(token_hash) - set("0123456789abcdef"):
        raise InvalidRequest("token_hash", "give the SHA-256 of the token as 64 lower-case hex digits")


def no_job(job_id: JobId) -> NotFound:
    """The error for an unknown job."""
    return NotFound(f"no job {job_id}")


def no_round(round_index: int | None) -> NotFound:
    """The error for a round that was never planned, or is no longer kept."""
    what = "no round has been planned yet" if round_index is None else f"no round {round_index}, or no longer kept"
    return NotFound(what)
