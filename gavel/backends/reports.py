"""Reads the reports of a job's runtime. A job may write anything: each line is checked, and bad ones are counted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.checkpoint_retention import CHECKPOINT
from gavel.backends.output import Mask, shortened
from gavel.types import TOTAL_STEPS_MAX, Report, ReportKind

LINE_BYTES = 1 << 14
METRICS_MAX = 16
METRIC_NAME_CHARACTERS = 64
NOTE_CHARACTERS = 1000
PHASES_MAX = 8
PHASE_NAME_CHARACTERS = 32
BYTES_MAX = 1 << 60
SECONDS_MAX = 1e9  # 30 years: sums of such numbers stay finite
TIME_TO_LOSS_MAX_S = 1e12  # of a small gang on a large cluster that loses none
WORK_MAX = 1e18


class ReportReader:
    """Reads reports.jsonl of one gang from where it stopped; `malformed` counts the lines that were no report.

    `mask` covers the secrets of the job in what the program names and notes.
    """

    def __init__(
        self, path: Path, *, generation: int, start_step: int, total_steps: int | None, checkpoints: Path
    ) -> None:
        self._path = path
        self._generation = generation
        self._total_steps = total_steps
        self._checkpoints = checkpoints
        self._offset = 0
        self._sequence = 0
        self._step = start_step
        self.mask = Mask()
        self.malformed = 0
        self.has_more = False

    def read(self) -> tuple[Report, ...]:
        """Return the reports since the last call, from at most 1 MiB; `has_more` says that there is more to read."""
        text = machine.read_from(str(self._path), self._offset)
        whole = text.rfind(b"\n") + 1
        self.has_more = len(text) == machine.READ_BYTES
        if not whole and self.has_more:
            whole = len(text)  # not a line that any report needs
        self._offset += whole
        return self.parse(text[:whole])

    def parse(self, text: bytes) -> tuple[Report, ...]:
        """Return the reports in whole lines, which follow those that were parsed before."""
        reports = [self._report(line) for line in text.splitlines()]
        self.malformed += reports.count(None)
        return tuple(report for report in reports if report is not None)

    def _report(self, line: bytes) -> Report | None:
        if len(line) > LINE_BYTES:
            return None
        try:
            payload = json.loads(line)
            report = self._checked(payload)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        self._sequence, self._step = report.sequence, report.step
        if report.total_steps is not None:
            self._total_steps = report.total_steps
        return report

    def _checked(self, payload: Mapping[str, Any]) -> Report:
        """Return the report, or raise ValueError.

        Counts must be whole and never go back, times finite, and a named checkpoint must exist. A program says how long
        it is once; what it says later is no report.
        """
        sequence = _whole(payload["sequence"], self._sequence + 1, 1 << 62)
        kind = ReportKind(payload["kind"])
        note = _note(self._masked(payload.get("note", ""))) if sequence == 1 else ""
        restored = self._restored(payload.get("restored")) if note else ""
        total_steps = self._total(payload)
        step = _whole(payload["step"], self._step, total_steps or TOTAL_STEPS_MAX)
        steps = _whole(payload.get("steps", 0), 0, step - self._step)
        seconds = _duration_s(payload.get("seconds", 0.0))
        if kind is ReportKind.FINISHED and total_steps is None:
            total_steps = max(1, step)
        return Report(
            sequence=sequence,
            kind=kind,
            step=step,
            steps=steps,
            seconds=seconds,
            checkpoint=self._checkpoint(payload.get("checkpoint"), kind, step),
            work=_bounded(payload.get("work", 0.0), WORK_MAX),
            phases_s=_phases(self._masked(payload.get("phases", {}))),
            total_steps=None if total_steps == self._total_steps else total_steps,
            metrics=_metrics(self._masked(payload.get("metrics", {}))),
            startup_s=_duration_or_none(payload.get("startup_s")),
            restore_s=_duration_or_none(payload.get("restore_s")),
            checkpoint_s=_duration_or_none(payload.get("checkpoint_s")),
            checkpoint_bytes=_bytes_or_none(payload.get("checkpoint_bytes")),
            checkpoint_every_s=_duration_or_none(payload.get("checkpoint_every_s")),
            checkpoint_cost_s=_duration_or_none(payload.get("checkpoint_cost_s")),
            time_to_loss_s=_duration_or_none(payload.get("time_to_loss_s"), TIME_TO_LOSS_MAX_S),
            note=note,
            restored=restored,
        )

    def _restored(self, name: Any) -> str:
        """Return the checkpoint before the accepted one that the gang begins with; "": it begins with the accepted one.

        The counts of its reports go on from there. Only a note makes it so, which is the event by which a job may go
        back. Raises ValueError, TypeError.
        """
        if name is None:
            return ""
        match = CHECKPOINT.fullmatch(name)
        if match is None or int(match[1]) >= self._generation or int(match[2]) >= self._step:
            raise ValueError("not a checkpoint before the accepted one")
        path = self._checkpoints / name
        if path.is_symlink() or not path.is_dir():
            raise ValueError("not a checkpoint of the job")
        self._step = int(match[2])
        return str(name)

    def _masked(self, reported: object) -> object:
        """Return a text, or an object with its names, without secrets; other values as they are."""
        if isinstance(reported, dict):
            return {self.mask.text(name): value for name, value in reported.items()}
        return self.mask.text(reported) if isinstance(reported, str) else reported

    def _total(self, payload: Mapping[str, Any]) -> int | None:
        """Return the job's number of steps: the one that was known, else the one that this report says, if it does."""
        reported = payload.get("total_steps")
        if reported is None:
            return self._total_steps
        least, most = (
            (max(1, payload["step"]), TOTAL_STEPS_MAX) if self._total_steps is None else (self._total_steps,) * 2
        )
        return _whole(reported, least, most)

    def _checkpoint(self, name: object, kind: ReportKind, step: int) -> str | None:
        if kind is ReportKind.PROGRESS or name is None:
            if kind is ReportKind.CHECKPOINT:
                raise ValueError("no checkpoint named")
            return None
        path = self._checkpoints / f"{self._generation}-{step}"
        if name != path.name or path.is_symlink() or not path.is_dir():
            raise ValueError("not this gang's checkpoint of this step")
        return path.name


def _whole(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is not a whole number from {least} to {most}")
    return value


def _duration_s(value: object) -> float:
    """Return the seconds. Raise ValueError if they are no number from 0 to SECONDS_MAX."""
    return _bounded(value, SECONDS_MAX)


def _bytes_or_none(value: object) -> int | None:
    return None if value is None else _whole(value, 0, BYTES_MAX)


def _duration_or_none(value: object, most_s: float = SECONDS_MAX) -> float | None:
    return None if value is None else _bounded(value, most_s)


def _bounded(value: object, most: float) -> float:
    number = machine.finite(value)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not a number from 0 to {most:g}")
    return number


def _phases(reported: object) -> dict[str, float]:
    """Return the seconds of each phase; raise ValueError for what the runtime does not write."""
    if not isinstance(reported, dict) or len(reported) > PHASES_MAX:
        raise ValueError(f"phases are no object of at most {PHASES_MAX} names")
    if any(not 0 < len(name) <= PHASE_NAME_CHARACTERS for name in reported):
        raise ValueError("a phase without a proper name")
    return {name: _duration_s(seconds) for name, seconds in reported.items()}


def _note(text: object) -> str:
    """Return the beginning of a masked text, with a question mark for what cannot be printed."""
    if not isinstance(text, str):
        raise ValueError("the note is no text")
    return "".join(each if each.isprintable() else "?" for each in shortened(text, NOTE_CHARACTERS))


def _metrics(reported: object) -> dict[str, float]:
    """Return the metrics that are finite numbers with short, printable names, of the first 16; a NaN is dropped."""
    if not isinstance(reported, dict):
        raise ValueError("metrics are no object")
    metrics: dict[str, float] = {}
    for name, value in list(reported.items())[:METRICS_MAX]:
        try:
            number = machine.finite(value)
        except ValueError:
            continue
        if 0 < len(name) <= METRIC_NAME_CHARACTERS and name.isprintable():
            metrics[name] = number
    return metrics
