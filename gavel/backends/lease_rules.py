"""The rules of a lease on its node, apart from processes and files. Standard library only: supervisors use them."""

CHECKPOINTED_EXIT_CODE = 75
LEASE, STOP = END_REASONS = ("lease", "stop")  # why a supervisor ends a gang
BACKSTOP_MARGIN_S = 30.0  # after lease and grace, the service ends what a supervisor has not ended


def extends(now_s: float, expires_s: float, wanted_s: float) -> bool:
    """Return True if an order moves the end of a lease: a lease that is over stays over, and none is shortened."""
    return now_s < expires_s < wanted_s


def end_reason(reason: str, *, is_over: bool, is_stopped: bool) -> str:
    """Return why a gang has to end ("lease" or "stop"), "" while it may run; a `reason` that it had before stays."""
    return reason or (STOP if is_stopped else LEASE if is_over else "")


def is_preemption(exit_code: int, *, is_ending: bool, is_over: bool) -> bool:
    """Return True if a rank failed since its gang is being ended, and not by a fault of its own."""
    return is_ending or (is_over and (exit_code < 0 or exit_code == CHECKPOINTED_EXIT_CODE))


def overdue_at_s(expires_s: float, stopped_s: float, grace_s: float) -> float:
    """Return when a gang that its supervisor should have ended is ended by others."""
    return min(expires_s, stopped_s) + grace_s + BACKSTOP_MARGIN_S
