"""A job of a trace, and what every reader says of a line that it cannot use."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gavel.errors import InvalidRequest
from gavel.types import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job and when it is submitted, in seconds since the trace began."""

    submitted_at_s: float
    spec: JobSpec


@dataclass(slots=True)
class Lines:
    """Reads a file line by line; a line that cannot be used is an error naming it, or counted where that is wanted.

    `skipped` holds the reason for each line that was left out; only filled with `is_lenient`.
    """

    path: Path
    is_lenient: bool = False
    skipped: list[str] = field(default_factory=list)

    def read(self, parse: Callable[[int, str], TraceJob | None]) -> Iterator[TraceJob]:
        """The jobs of `parse(line number from 1, line)`, None: no job. Raises InvalidRequest naming file and line."""
        with self.path.open(encoding="utf-8", newline="") as lines:
            yield from self.parsed(enumerate(lines, start=1), parse)

    def parsed(
        self, numbered: Iterable[tuple[int, str]], parse: Callable[[int, str], TraceJob | None]
    ) -> Iterator[TraceJob]:
        """The same for lines that are already open."""
        for number, line in numbered:
            try:
                job = parse(number, line.rstrip("\r\n")) if line.strip() else None
            except (ValueError, KeyError, InvalidRequest) as error:
                self.refuse(number, str(error))
                continue
            if job is not None:
                yield job

    def refuse(self, number: int, reason: str) -> None:
        """Count the line, or raise InvalidRequest naming it."""
        if not self.is_lenient:
            raise InvalidRequest(f"{self.path.name}, line {number}", reason)
        self.skipped.append(f"line {number}: {reason}")


def number(text: str, name: str, *, least: float = 0.0) -> float:
    """`text` as a finite number; raises ValueError naming the column and what would do."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; give a number") from None
    if not least <= value < float("inf"):
        raise ValueError(f"{name} is {text}; give a finite number of at least {least:g}")
    return value


def whole(text: str, name: str, *, least: int = 1) -> int:
    """`text` as an integer; raises ValueError naming the column."""
    value = number(text, name, least=least)
    if value != int(value):
        raise ValueError(f"{name} is {text}; give a whole number")
    return int(value)
