"""Readers of traces. Each yields TraceJobs in the order of the file; times count from the first submission.

A line that cannot be used raises InvalidRequest with its number and the reason, or is counted (`Lines.is_lenient`).
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gavel.errors import InvalidRequest
from gavel.types import JobSpec
from workloads.traces.history import TIER, history
from workloads.traces.job import Lines, TraceJob, number, whole
from workloads.traces.throughputs import UNIT_KIND

Reader = Callable[[Lines], Iterator[TraceJob]]
PUBLISHED_COLUMNS = 10


def read_trace(lines: Lines, form: str = "") -> Iterator[TraceJob]:
    """Yield the jobs of a file in the named format (a key of READERS), or in the one that its first line shows."""
    form = form or recognised(lines)
    if form not in READERS:
        raise InvalidRequest("format", f"there is no {form!r}; choose one of {', '.join(READERS)}")
    return _in_order(lines, READERS[form](lines))


def recognised(lines: Lines) -> str:
    """Return the format of the file by its first line; raises InvalidRequest if it is none of READERS."""
    with lines.path.open(encoding="utf-8") as content:
        first = content.readline()
    marks = {"history": first.startswith("{"), "sacct": "|" in first, "published": "\t" in first, "csv": "," in first}
    for form, is_it in marks.items():
        if is_it:
            return form
    raise InvalidRequest(f"{lines.path.name}, line 1", f"is none of {', '.join(marks)}; name the format")


def published(lines: Lines) -> Iterator[TraceJob]:
    """Gavel's tab-separated traces: kind, command, folder, steps flag, needs data, steps, scale factor, weight, SLO,
    arrival in seconds. Steps may be real numbers; a command is not kept.
    """
    return lines.read(_published_job)


def _published_job(line_number: int, line: str) -> TraceJob:
    fields = line.split("\t")
    if len(fields) != PUBLISHED_COLUMNS:
        raise ValueError(f"has {len(fields)} columns between tabs; wanted {PUBLISHED_COLUMNS}")
    kind, _, _, _, _, steps, size, weight, _, arrival = fields
    spec = _spec(
        kind=kind,
        name=f"job-{line_number}",
        total_steps=max(1, math.ceil(number(steps, "total steps") - 1e-6)),
        scale_factor=whole(size, "scale factor"),
        weight=number(weight, "weight", least=1e-9),
    )
    return TraceJob(submitted_at_s=number(arrival, "arrival"), spec=spec)


def plain_csv(lines: Lines) -> Iterator[TraceJob]:
    """A header and submit_time_s, duration_s, num_gpus; optional user or vc, model, deadline_s (an instant).

    Jobs have one step per second of their duration, until `with_kinds` gives them a kind.
    """
    with lines.path.open(encoding="utf-8", newline="") as content:
        header = _header(lines, content.readline(), ",", ("submit_time_s", "duration_s", "num_gpus"))
        yield from lines.parsed(enumerate(content, start=2), partial(_csv_job, header))


def _csv_job(header: list[str], line_number: int, line: str) -> TraceJob:
    row = _row(header, next(csv.reader([line])))
    deadline = row.get("deadline_s", "")
    spec = _spec(
        kind=UNIT_KIND,
        name=f"job-{line_number}",
        user=row.get("user") or row.get("vc") or "nobody",
        total_steps=max(1, math.ceil(number(row["duration_s"], "duration_s"))),
        scale_factor=whole(row["num_gpus"], "num_gpus"),
        deadline_at_s=number(deadline, "deadline_s") if deadline else None,
    )
    return TraceJob(submitted_at_s=number(row["submit_time_s"], "submit_time_s"), spec=spec)


def sacct(lines: Lines) -> Iterator[TraceJob]:
    """`sacct --parsable2 --allusers --format=JobID,User,Submit,ElapsedRaw,AllocTRES`, sorted by submission.

    Needs the columns JobID, Submit, ElapsedRaw or Elapsed, and AllocTRES or ReqTRES with gres/gpu. Job steps, jobs that
    never ran and jobs without GPUs are left out: they are no work for accelerators.
    """
    with lines.path.open(encoding="utf-8") as content:
        header = _header(lines, content.readline(), "|", ("JobID", "Submit"))
        for either in (("ElapsedRaw", "Elapsed"), ("AllocTRES", "ReqTRES")):
            if not set(either) & set(header):
                raise InvalidRequest(f"{lines.path.name}, line 1", f"has no column {' or '.join(either)}; export it")
        jobs = list(lines.parsed(enumerate(content, start=2), partial(_sacct_job, header)))
    jobs.sort(key=lambda job: job.submitted_at_s)
    start_s = jobs[0].submitted_at_s if jobs else 0.0
    for job in jobs:
        yield TraceJob(submitted_at_s=job.submitted_at_s - start_s, spec=job.spec)


def _sacct_job(header: list[str], line_number: int, line: str) -> TraceJob | None:
    row = _row(header, line.split("|"))
    gpus = _gpus(row.get("AllocTRES") or row.get("ReqTRES", ""))
    elapsed_s = _elapsed_s(row)
    if "." in row["JobID"] or gpus == 0 or elapsed_s == 0:
        return None
    spec = _spec(
        kind=UNIT_KIND,
        name=row["JobID"],
        user=row.get("User") or "nobody",
        total_steps=elapsed_s,
        scale_factor=gpus,
    )
    return TraceJob(submitted_at_s=_instant_s(row["Submit"]), spec=spec)


def _gpus(tres: str) -> int:
    """Return the number of GPUs of a text such as `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G`."""
    counts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    if "gres/gpu" in counts:
        return whole(counts["gres/gpu"], "gres/gpu", least=0)
    return sum(whole(count, name, least=0) for name, count in counts.items() if name.startswith("gres/gpu:"))


def _elapsed_s(row: Mapping[str, str]) -> int:
    """Return the seconds from ElapsedRaw, or from Elapsed as [days-]hours:minutes:seconds."""
    if "ElapsedRaw" in row:
        return whole(row["ElapsedRaw"], "ElapsedRaw", least=0)
    days, _, clock = row["Elapsed"].rpartition("-")
    try:
        hours, minutes, seconds = (int(part) for part in clock.split(":"))
        return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
    except ValueError:
        raise ValueError(f"Elapsed is {row['Elapsed']!r}; wanted [days-]hours:minutes:seconds") from None


def _instant_s(text: str) -> float:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"Submit is {text!r}; wanted an instant like 2026-01-31T12:00:00") from None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


READERS: Mapping[str, Reader] = {"published": published, "csv": plain_csv, "sacct": sacct, "history": history}


def _in_order(lines: Lines, jobs: Iterator[TraceJob]) -> Iterator[TraceJob]:
    last_s = 0.0
    for job in jobs:
        if job.submitted_at_s < last_s:
            raise InvalidRequest(
                f"{lines.path.name}, job {job.spec.name}",
                f"arrives at {job.submitted_at_s:g} s, before the one above it at {last_s:g} s; sort the file by time",
            )
        last_s = job.submitted_at_s
        yield job


def _header(lines: Lines, first: str, separator: str, needed: tuple[str, ...]) -> list[str]:
    header = first.strip().split(separator)
    missing = [name for name in needed if name not in header]
    if missing:
        raise InvalidRequest(
            f"{lines.path.name}, line 1", f"has no column {', '.join(missing)}; found {first.strip()!r}"
        )
    return header


def _row(header: list[str], fields: list[str]) -> dict[str, str]:
    if len(fields) != len(header):
        raise ValueError(f"has {len(fields)} columns; the header has {len(header)}")
    return dict(zip(header, fields, strict=True))


def _spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"user": "nobody", "tier": TIER, "argv": (), **fields})
