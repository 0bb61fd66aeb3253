"""A job of a trace, and how all readers report a line that they cannot use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gavel.errors import InvalidRequest
from gavel.types import AcceleratorType, JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job and its time of submission, in seconds since the trace began; deadlines count from the same instant.

    Other jobs of the trace refer to it by `id`, in `spec.after`. Where the submission does not say how many steps the
    job has (`spec.total_steps` None), its program says `program_steps` when it starts. A job with `ends_at_step` ends
    there, whatever its submission and its program say. `steps_per_s` are the speeds of an elastic job by size and type;
    it never has a size without one. `plan_steps_per_s` are those of a job with execution plans, by plan, size and type.
    `fastest_steps_per_s` is its speed alone where it is the fastest, of all types, sizes and plans, if it has a choice.
    """

    submitted_at_s: float
    spec: JobSpec
    id: str = ""
    program_steps: int | None = None
    ends_at_step: int | None = None
    steps_per_s: Mapping[int, Mapping[AcceleratorType, float]] = field(default_factory=dict)
    plan_steps_per_s: Mapping[str, Mapping[int, Mapping[AcceleratorType, float]]] = field(default_factory=dict)
    fastest_steps_per_s: float | None = None

    @property
    def speeds(self) -> dict[tuple[str, int, AcceleratorType], float]:
        """Return the steps per second that the trace states for its sizes and plans, by kind, size and type."""
        own = {self.spec.kind: self.steps_per_s}
        own |= {plan.kind: self.plan_steps_per_s.get(plan.name, {}) for plan in self.spec.plans}
        return {
            (kind, size, name): rate
            for kind, by_size in own.items()
            for size, of_size in by_size.items()
            for name, rate in of_size.items()
        }

    @property
    def total_steps(self) -> int:
        """Return how many steps the job makes. Raises InvalidRequest if nothing says it."""
        return self.stated_steps if self.ends_at_step is None else self.ends_at_step

    @property
    def stated_steps(self) -> int:
        """Return how many steps submission or program say that the job has. Raises InvalidRequest if neither does."""
        total_steps = self.program_steps if self.spec.total_steps is None else self.spec.total_steps
        if total_steps is None:
            raise InvalidRequest("total_steps", f"job {self.id or self.spec.name}: say how many steps it has")
        return total_steps


@dataclass(slots=True)
class Lines:
    """Reads a file line by line. A line that cannot be used raises InvalidRequest, or with `is_lenient` is skipped.

    `skipped` has the reason for each skipped line.
    """

    path: Path
    is_lenient: bool = False
    skipped: list[str] = field(default_factory=list)

    def read(self, parse: Callable[[int, str], TraceJob | None]) -> Iterator[TraceJob]:
        """Yield the jobs of `parse(line number from 1, line)`; None is no job. Raises InvalidRequest with the line."""
        with self.path.open(encoding="utf-8", newline="") as lines:
            yield from self.parsed(enumerate(lines, start=1), parse)

    def parsed(
        self, numbered: Iterable[tuple[int, str]], parse: Callable[[int, str], TraceJob | None]
    ) -> Iterator[TraceJob]:
        """Yield the jobs of numbered lines that are read already, as `read` does."""
        for number, line in numbered:
            try:
                job = parse(number, line.rstrip("\r\n")) if line.strip() else None
            except (ValueError, KeyError, InvalidRequest) as error:
                self.refuse(number, str(error))
                continue
            if job is not None:
                yield job

    def refuse(self, number: int, reason: str) -> None:
        """Record the line as skipped, or raise InvalidRequest naming it."""
        if not self.is_lenient:
            raise InvalidRequest(f"{self.path.name}, line {number}", reason)
        self.skipped.append(f"line {number}: {reason}")


def number(text: str, name: str, *, least: float = 0.0) -> float:
    """Return `text` as a finite number; raises ValueError naming the column and what it accepts."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; give a number") from None
    if not least <= value < float("inf"):
        raise ValueError(f"{name} is {text}; give a finite number of at least {least:g}")
    return value


def whole(text: str, name: str, *, least: int = 1) -> int:
    """Return `text` as an integer; raises ValueError naming the column."""
    value = number(text, name, least=least)
    if value != int(value):
        raise ValueError(f"{name} is {text}; give a whole number")
    return int(value)
