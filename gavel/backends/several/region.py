"""One backend of several: what it is told and asked, one call at a time, and what of that it did not get."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.several.calls import Calls
from gavel.backends.several.clock_offset import ahead_s
from gavel.errors import BackendUnavailable, GavelError
from gavel.ports import (
    Clock,
    ClusterBackend,
    CordonNode,
    ForgetGang,
    Instruction,
    LaunchGang,
    PrepareGang,
    SaveCheckpoint,
    SetResources,
)
from gavel.types import JobId, Observation

log = structlog.get_logger("gavel.regions")

REPEATED = (LaunchGang, PrepareGang, SaveCheckpoint, ForgetGang, CordonNode)
"""What is not kept for a region that does not answer: who decides gives it again, or not, by what is then true."""


class RegionBackend(ClusterBackend, Protocol):
    """A backend that can be one of several."""

    def forget_job(self, job_id: JobId) -> None:
        """Drop what is kept of a job that has ended. Safe from any thread."""


Opening = Callable[[], RegionBackend]
Instructions = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one call: an observation if that was asked for, what could not be delivered, and why not.

    `ahead_s`: how far the clock of the instants in `seen` was ahead of the steady one. `problem`: why the region cannot
    be reached. `refused`: what the backend raised for an instruction.
    """

    seen: Observation | None = None
    ahead_s: float = 0.0
    unsent: Instructions = ()
    problem: str = ""
    refused: Exception | None = None


class Region:
    """A backend and the link to it. One call at a time; whoever finds one in progress does not wait for it.

    `open_` opens the backend, at the first call and again until that succeeds; `calls` makes the calls. What cannot be
    delivered is kept and delivered with the next call, except what is in REPEATED. Not thread-safe but `forget_job` and
    `notes`.
    """

    def __init__(self, name: str, open_: Opening, calls: Calls, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.problem = ""  # why the last call failed; "" if it did not
        self._open = open_
        self._calls = calls
        self._backend: RegionBackend | None = None  # of the calls, once it is open
        self._late: list[Instruction] = []  # what could not be delivered yet
        self._call: Future[Answer] | None = None
        self._is_slow = False  # the last call took longer than anybody waits

    # --- calls --------------------------------------------------------------------------------------------------

    @property
    def is_free(self) -> bool:
        """Return False while a call is in progress."""
        return self._call is None

    @property
    def awaited(self) -> Future[Answer] | None:
        """Return the call to wait for; None if there is none, or if the region was too slow the last time."""
        return None if self._is_slow else self._call

    def ask(self) -> None:
        """Begin an observation, unless a call is in progress."""
        if self.is_free:
            self._begin((), observes=True)

    def send(self, instructions: Sequence[Instruction]) -> None:
        """Begin to deliver instructions; while a call is in progress they are kept for the next one."""
        if self.is_free:
            self._begin(tuple(instructions), observes=False)
        else:
            self._keep(instructions)

    def take(self) -> Answer | None:
        """Return what came of the call in progress; None if it goes on, or there is none."""
        if self._call is None:
            return None
        if not self._call.done():
            self._is_slow, self.problem = True, self.problem or "it does not answer"
            return None
        answer, self._call = self._call.result(), None
        self._is_slow, self.problem = False, answer.problem
        later, self._late = self._late, []
        self._keep((*answer.unsent, *later))
        return answer

    def _keep(self, instructions: Iterable[Instruction]) -> None:
        """Keep instructions, in order, of those about the same thing the last one."""
        kept = {_about(each): each for each in self._late}
        for each in instructions:
            if not isinstance(each, REPEATED):
                kept.pop(_about(each), None)
                kept[_about(each)] = each
        self._late = [*kept.values()]

    def _begin(self, instructions: Instructions, *, observes: bool) -> None:
        late, self._late = tuple(self._late), []
        self._call = self._calls.begin(lambda: self._answer(late, instructions, observes=observes))

    # --- in a call ----------------------------------------------------------------------------------------------

    def _close(self) -> None:
        if self._backend is not None:
            with suppress(Exception):  # whatever it is: nobody is left to hear of it
                self._backend.close()

    def _answer(self, late: Instructions, instructions: Instructions, *, observes: bool) -> Answer:
        todo = (*late, *instructions)
        try:
            backend = self._opened()
            _deliver(backend, late)
            if instructions:
                backend.execute(instructions)
            seen = backend.observe() if observes else None
            return Answer(seen=seen, ahead_s=ahead_s(self._clock))
        except (BackendUnavailable, OSError) as problem:
            return Answer(unsent=todo, problem=str(problem))
        except GavelError as refused:
            return Answer(refused=refused)
        except Exception as fault:  # the boundary of the calls: one backend at fault holds up no other
            log.exception("region.failed", region=self.name)
            return Answer(unsent=todo, problem=f"{type(fault).__name__}: {fault}")

    def _opened(self) -> RegionBackend:
        try:
            self._backend = self._backend or self._open()
        except GavelError as problem:
            raise BackendUnavailable(str(problem)) from problem
        return self._backend

    # --- from any thread ----------------------------------------------------------------------------------------

    def forget_job(self, job_id: JobId) -> None:
        """Drop what the backend keeps of a job that has ended, if it is open."""
        if self._backend is not None:
            self._backend.forget_job(job_id)

    def notes(self) -> tuple[str, ...]:
        """Return what an operator should know of this cluster."""
        return self._backend.notes() if isinstance(self._backend, NodesBackend) else ()

    def close(self) -> None:
        """Take no more calls; the backend is closed once the call in progress is over."""
        self._calls.end(self._close)

    def wait_closed(self) -> None:
        """Return once the backend is closed; after a while in any case, for a link that hangs."""
        self._calls.wait_ended()


def _deliver(backend: RegionBackend, late: Instructions) -> None:
    """Carry out what could not be delivered before, each for itself: what is refused by now is over."""
    for each in late:
        try:
            backend.execute([each])
        except BackendUnavailable:
            raise
        except GavelError as refused:
            log.warning("instruction.too_late", instruction=type(each).__name__, error=str(refused))


def _about(instruction: Instruction) -> object:
    """Return what an instruction is about: a later one about the same replaces it."""
    if isinstance(instruction, SetResources):
        return tuple((each.owner, each.name, each.node) for each in instruction.resources)
    if isinstance(instruction, LaunchGang | PrepareGang | CordonNode):
        return instruction
    return type(instruction), instruction.job_id, getattr(instruction, "generation", 0)
