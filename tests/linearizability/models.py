"""What the service promises of one job, one tier and one operation, as state machines with one call at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.linearizability.checker import Operation, Step, is_linearizable

REFUSED = "refused"  # the answer 409, or 412


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job by its idempotency key. `id` is empty before the submit, and "?" while no answer has shown it."""

    id: str = ""
    is_paused: bool = False
    weight: float = 1.0
    is_cancelled: bool = False
    has_ended: bool = False  # some time after it was cancelled the scheduler ends it


JobShown = tuple[str, bool, float, bool]
"""What an answer shows of a job: id, paused, weight, cancelled."""


def job_step(state: JobState, operation: Operation) -> Iterator[JobState]:
    """The states that a call on a job may lead to."""
    if not state.id:
        if operation.name == "submit":
            yield from _shown(JobState(id="?"), operation, is_replay=False)
        return
    if operation.name in ("get", "submit"):
        yield from _shown(state, operation, is_replay=True)
    elif operation.name == "cancel":
        yield from _shown(replace(state, is_cancelled=True), operation)
    else:
        yield from _changed(state, operation)


def _changed(state: JobState, operation: Operation) -> Iterator[JobState]:
    if operation.result == REFUSED or not operation.is_answered:
        if state.is_cancelled:  # what has ended is not changed any more
            yield replace(state, has_ended=True)
        if operation.result == REFUSED:
            return
    if not state.has_ended:
        argument = operation.argument
        new = replace(state, weight=argument) if operation.name == "edit" else replace(state, is_paused=argument)
        yield from _shown(new, operation)


def _shown(state: JobState, operation: Operation, *, is_replay: bool | None = None) -> Iterator[JobState]:
    """The state, if it is what the answer shows; any is without an answer."""
    if not operation.is_answered:
        yield state
        return
    if operation.name == "submit":
        *shown, replayed = operation.result
        if replayed is not is_replay:
            return
    else:
        shown = list(operation.result)
    if shown[0] and state.id in ("?", shown[0]) and [state.is_paused, state.weight, state.is_cancelled] == shown[1:]:
        yield replace(state, id=shown[0])


TierState = tuple[int, float]
"""Version and weight of a tier."""


def tier_step(state: TierState, operation: Operation) -> Iterator[TierState]:
    """The states that a call on a tier may lead to: a change names the version that it replaces."""
    if operation.name == "get":
        if not operation.is_answered or operation.result == state:
            yield state
        return
    version, weight = operation.argument
    new = (state[0] + 1, weight)
    if operation.result == REFUSED:
        if version != state[0]:
            yield state
    elif version != state[0]:
        if not operation.is_answered:
            yield state
    elif not operation.is_answered or operation.result == new:
        yield new


def operation_step(has_ended: bool, operation: Operation) -> Iterator[bool]:
    """The states of an acknowledged operation: pending, then ended for good. Any reading may see its end first."""
    if not operation.is_answered:
        yield has_ended
    elif operation.result is not None and operation.result >= has_ended:  # None: there is no such operation
        yield operation.result


MODELS: Mapping[str, tuple[object, Step]] = {
    "job": (JobState(), job_step),
    "tier": ((1, 1.0), tier_step),
    "operation": (False, operation_step),
}


def violations(history: Mapping[tuple[str, str], Sequence[Operation]]) -> list[tuple[str, str]]:
    """The keys (kind, name) of a history whose operations no order explains: each key is checked alone."""
    return [key for key, operations in history.items() if not is_linearizable(operations, *MODELS[key[0]])]
