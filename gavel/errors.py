"""The exceptions that Gavel raises, all of them.

GavelError
├── InvalidRequest        the caller's input cannot be accepted; names the field and the fix
│   ├── InvalidProblem    an allocation problem holds NaN, infinities, negative rates or wrong shapes
│   └── InvalidResource   an ephemeral resource's name, capacity or owner cannot be accepted
├── NotFound              no such job, tier, user, round
├── Conflict              somebody else changed it first: read again, decide again
│   ├── StaleVersion      an expected version or generation is no longer current
│   ├── LeadershipLost    another process leads the scheduler now: commit nothing, step down
│   └── KeyReused         an idempotency key came back with a different body
├── LimitReached          a user or a tier has as many unfinished jobs as it may have
├── SolveFailed           no checked allocation: time-out, infeasible, inaccurate, crash of the solver
├── InvalidTransition     a (state, event) pair outside the lifecycle table; has the job's history
├── InvariantViolated     a named invariant does not hold: planning stops, leases go on
├── StoreUnavailable      the database is locked, full or gone: nothing was acknowledged, try again
└── BackendUnavailable    the cluster could not be observed or reached; leases carry on
"""

from collections.abc import Iterable
from difflib import get_close_matches

NAMES_MOST = 20  # of thousands of nodes nobody reads all


class GavelError(Exception):
    """Root of every error that Gavel raises on purpose."""


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the name that is spelled most like `wanted`; empty if none is like it."""
    close = get_close_matches(wanted, list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def first_few(names: Iterable[str]) -> str:
    """Return the first NAMES_MOST of the names, sorted, and how many others there are; "none" if there is none."""
    ordered = sorted(names)
    others = len(ordered) - NAMES_MOST
    return ", ".join(ordered[:NAMES_MOST]) + (f" and {others} more" if others > 0 else "") or "none"


class InvalidRequest(GavelError):
    """The caller's input cannot be accepted; `field` names the input, the message says what would be accepted."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class InvalidProblem(InvalidRequest):
    """An allocation problem holds a value no policy can use; `field` names the array and the row."""


class InvalidResource(InvalidRequest):
    """An ephemeral resource's name, capacity, lease or owner cannot be accepted."""


class NotFound(GavelError):
    """There is no such thing, or the caller may not see it."""


class Conflict(GavelError):
    """The thing was changed by somebody else first, or its state does not allow the request."""


class StaleVersion(Conflict):
    """The expected version or generation is no longer current."""


class LeadershipLost(Conflict):
    """Another process leads the scheduler now."""


class KeyReused(Conflict):
    """An idempotency key came back with a different request body."""


class LimitReached(GavelError):
    """A user or a tier has as many unfinished jobs as it may have; the message has the figures."""


class SolveFailed(GavelError):
    """The solver gave no answer that passed its check."""


class InvalidTransition(GavelError):
    """An event that the job's state does not admit; `history` is what happened to the job before."""

    def __init__(self, job_id: str, state: str, event: str, history: tuple[str, ...] = ()) -> None:
        past = "; ".join(history) or "no history"
        super().__init__(f"job {job_id} is {state} and cannot take {event} (history: {past})")
        self.job_id = job_id
        self.history = history


class InvariantViolated(GavelError):
    """A named invariant does not hold."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class StoreUnavailable(GavelError):
    """The database cannot take a write now; nothing of the request was acknowledged."""


class BackendUnavailable(GavelError):
    """The cluster cannot be observed or reached now."""
