"""Draws what every policy makes of the same small example, for docs/policies.md.

usage: .venv/bin/python -m scripts.policy_pictures [FOLDER]          (default: docs/pictures/policies)
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from gavel.policies import measures, registry, with_pairs
from gavel.policies.tiers.objectives import OBJECTIVES
from gavel.types import Allocation, AllocationProblem, Tier
from scripts.drawn import main

PICTURES = Path(__file__).parents[1] / "docs" / "pictures" / "policies"
ALSO = {"packed": "max_min_fairness", "agnostic": "max_min_fairness?agnostic=true"}  # variants that get a picture too

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .quiet { fill: #656d76 } .number { text-anchor: end; font-variant-numeric: tabular-nums }
  .time { fill: #eaeef2 } .type0 { fill: #0969da } .type1 { fill: #2da44e } .type2 { fill: #d4862a }
  .packed { stroke: #ffffff; stroke-width: 2; stroke-dasharray: 2 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .time { fill: #30363d } .packed { stroke: #0d1117 }
    .type0 { fill: #4493f8 } .type1 { fill: #3fb950 } .type2 { fill: #e3a04f }
  }
"""
NAME_WIDTH, BAR_WIDTH, NUMBER_WIDTH, ROW, BAR = 150, 330, 60, 24, 14
MARGIN = 8


def example() -> AllocationProblem:
    """Six jobs on one v100, one p100 and two k80: steps per second and steps left of well-known models."""
    jobs = ("translation", "transformer", "resnet-50", "recommender", "resnet-18, gang of 2", "a3c")
    rates = np.zeros((6, 2, 3))
    rates[:, 0] = [
        [6.0, 4.6, 0.9],
        [40.0, 28.0, 11.0],
        [5.0, 2.6, 0.7],
        [30.0, 27.0, 17.0],
        [0, 0, 14.0],
        [2, 1.7, 1.2],
    ]
    return AllocationProblem(
        now_s=0.0,
        round_duration_s=360.0,
        job_ids=jobs,
        combinations=tuple((row,) for row in range(6)),
        accelerator_types=("v100", "p100", "k80"),
        throughput_steps_per_s=rates,
        capacity_workers=np.asarray([1, 1, 2]),
        price_usd_per_hour=np.asarray([2.48, 1.46, 0.45]),
        scale_factor=np.asarray([1, 1, 1, 1, 2, 1]),
        weight=np.asarray([1.0, 1.0, 2.0, 1.0, 1.0, 1.0]),
        steps_remaining=np.asarray([9e4, 2e5, 6e4, 9e4, 5e4, 4e3]),
        age_s=np.asarray([9e3, 7e3, 5e3, 3e3, 2e3, 1e3]),
        attained_service_s=np.asarray([3e3, 4e3, 1e3, 2e3, 0.0, 0.0]),
        isolated_time_s=np.asarray([2e3, 2e3, 1e3, 1e3, 0.0, 0.0]),
        deadline_at_s=np.asarray([np.inf, np.inf, 1.5e4, np.inf, np.inf, 1e3]),
        tiers=(Tier(name="gold", weight=2.0), Tier(name="bronze", objective="fifo")),
        tier_of_job=np.asarray([1, 1, 0, 1, 0, 0]),
        users=("ann", "bob", "cem", "ann", "dan", "eva"),
        cpu_cores=np.asarray([2.0, 2.0, 12.0, 1.0, 4.0, 6.0]),
        memory_bytes=np.asarray([8.0, 16.0, 8.0, 4.0, 8.0, 4.0]) * 2**30,
        cluster_cpu_cores=16.0,
        cluster_memory_bytes=64.0 * 2**30,
    )


def in_one_tier(objective: str) -> AllocationProblem:
    """The example with all jobs in one tier of this objective."""
    problem = example()
    return replace(problem, tiers=(Tier(name="gold", objective=objective),), tier_of_job=np.zeros(6, dtype=np.int64))


def packed() -> AllocationProblem:
    """The example with what was measured of pairs: light jobs hardly slow each other down."""
    problem = example()
    alone = problem.throughput_steps_per_s[:, 0]
    parts = {(0, 3): (0.7, 0.8), (1, 3): (0.75, 0.7), (3, 5): (0.85, 0.95), (1, 5): (0.8, 0.95), (0, 1): (0.5, 0.45)}
    rates = {
        (problem.job_ids[a], problem.job_ids[b]): alone[[a, b]] * np.asarray(part)[:, None]
        for (a, b), part in parts.items()
    }
    return with_pairs(problem, rates)


@dataclass(frozen=True)
class Segment:
    """A stretch of a job's time on a type, from `start` to `end` in [0, 1]."""

    start: float
    end: float
    column: int
    is_packed: bool


def segments(problem: AllocationProblem, allocation: Allocation, job: int) -> Iterator[Segment]:
    """The job's time, type by type."""
    at = 0.0
    for column in range(len(problem.accelerator_types)):
        for row, members in enumerate(problem.combinations):
            part = float(allocation.time_fraction[row, column])
            if job in members and part > 1e-4:
                yield Segment(at, at + part, column, len(members) > 1)
                at += part


def bar(segment: Segment, y: int) -> str:
    x, width = NAME_WIDTH + segment.start * BAR_WIDTH, (segment.end - segment.start) * BAR_WIDTH
    drawn = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" class="type{segment.column}"/>'
    middle = y + BAR / 2
    lines = f'<line x1="{x:.1f}" x2="{x + width:.1f}" y1="{middle}" y2="{middle}" class="packed"/>'
    return drawn + (lines if segment.is_packed else "")


def job_row(problem: AllocationProblem, allocation: Allocation, job: int, speed: float) -> Iterator[str]:
    top = MARGIN + ROW + job * ROW
    yield f'<text x="0" y="{top + 11}">{escape(problem.job_ids[job])}</text>'
    yield f'<rect x="{NAME_WIDTH}" y="{top}" width="{BAR_WIDTH}" height="{BAR}" class="time"/>'
    for segment in segments(problem, allocation, job):
        yield bar(segment, top)
    yield f'<text x="{NAME_WIDTH + BAR_WIDTH + NUMBER_WIDTH}" y="{top + 11}" class="number">{speed:.2f}</text>'


def legend(problem: AllocationProblem, allocation: Allocation) -> Iterator[str]:
    """Each type's colour, and how much of its workers is in use."""
    top = MARGIN + ROW * (len(problem.job_ids) + 1) + 4
    held = measures.gang_size(problem) @ allocation.time_fraction
    for column, name in enumerate(problem.accelerator_types):
        workers = int(problem.capacity_workers[column])
        x = column * (NAME_WIDTH + BAR_WIDTH) / len(problem.accelerator_types)
        yield f'<rect x="{x:.1f}" y="{top}" width="10" height="10" class="type{column}"/>'
        text = f"{workers} {name}, {held[column] / workers:.0%} in use"
        yield f'<text x="{x + 15:.1f}" y="{top + 9}" class="quiet">{text}</text>'


def svg(problem: AllocationProblem, allocation: Allocation) -> str:
    """A bar of time for each job, coloured by type, with its relative throughput at the end."""
    width, height = NAME_WIDTH + BAR_WIDTH + NUMBER_WIDTH, MARGIN + ROW * (len(problem.job_ids) + 2)
    speeds = measures.relative_throughput(problem, allocation.time_fraction)
    rows = [line for job, speed in enumerate(speeds) for line in job_row(problem, allocation, job, float(speed))]
    heading = f'<text x="{NAME_WIDTH}" y="{MARGIN + 9}" class="quiet">all of its time</text>'
    heading += f'<text x="{width}" y="{MARGIN + 9}" class="quiet number">speed</text>'
    body = "\n".join([heading, *rows, *legend(problem, allocation)])
    label = f"Time of each job on each accelerator type under {allocation.policy}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">
<style>{STYLE}</style>
{body}
</svg>
"""


def draw(folder: Path) -> list[Path]:
    """One picture for each policy and variant, and for each objective of a tier; returns the files written."""
    specs = {info.name: info.name for info in registry.available()} | ALSO
    written = []
    for name, spec in specs.items():
        problem = packed() if name in ("packed", "gandiva") else example()
        written.append(folder / f"{name}.svg")
        written[-1].write_text(svg(problem, registry.load(spec).allocate(problem)))
    for objective in OBJECTIVES:
        problem = in_one_tier(objective)
        written.append(folder / f"objective_{objective}.svg")
        written[-1].write_text(svg(problem, registry.load("hierarchical").allocate(problem)))
    return written


if __name__ == "__main__":
    sys.exit(main(draw, PICTURES))
