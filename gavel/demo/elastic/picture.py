"""The picture of the demo of elastic jobs, as SVG: how many workers each job had over time, in both runs."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from gavel.demo.elastic.runs import Ran, Trained
from gavel.demo.elastic.workload import RIGID_SIZE, SIZES

WIDTH, LEFT, RIGHT, TOP, ROW, UNIT, GAP = 900, 64, 12, 44, 38, 7, 46
COLOURS = ("#064086", "#da6310", "#016833", "#b5408c", "#5f011a", "#0a7c97")
STYLE = """
  svg { background: #ffffff }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 } .quiet { fill: #656d76 } .end { text-anchor: end }
  .middle { text-anchor: middle } .axis { stroke: #8d96a0; fill: none } .wait { stroke: #8d96a0 }
"""


def drawn(rigid: Ran, elastic: Ran) -> str:
    """Return the picture. A job is a row: its height at an instant is its size, a thin line is time without workers."""
    until_s = max(each.submitted_at_s + each.jct_s - _first_s(run) for run in (rigid, elastic) for each in run.trained)
    per_s = (WIDTH - LEFT - RIGHT) / max(until_s, 1e-9)
    rows = len(elastic.trained)
    second = TOP + rows * ROW + GAP
    bottom = second + rows * ROW
    sizes = ", ".join(map(str, SIZES[:-1]))
    parts = [
        *_run(rigid, f"Always {RIGID_SIZE} workers: mean {rigid.mean_jct_s:.0f} s to completion", TOP, per_s),
        *_run(elastic, f"Elastic, {sizes} or {SIZES[-1]}: mean {elastic.mean_jct_s:.0f} s", second, per_s),
        *_axis(bottom, until_s, per_s),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img">'
    return f"{head}<title>Workers of each job over time</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"


def _first_s(run: Ran) -> float:
    return run.trained[0].submitted_at_s


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _run(run: Ran, title: str, top: float, per_s: float) -> Iterator[str]:
    yield _text(LEFT, top - 12, title)
    for place, job in enumerate(run.trained):
        yield from _job(job, _first_s(run), top + (place + 1) * ROW - 4, per_s, COLOURS[place % len(COLOURS)])


def _job(job: Trained, first_s: float, floor: float, per_s: float, colour: str) -> Iterator[str]:
    """Yield the row of a job: a line from its arrival to its end, and on it a box for each size that it had."""
    begin, end = (LEFT + per_s * (at_s - first_s) for at_s in (job.submitted_at_s, job.submitted_at_s + job.jct_s))
    yield _text(LEFT - 8, floor, job.name, "end")
    yield f'<path d="M{begin:.1f} {floor}H{end:.1f}" class="wait"/>'
    for size, from_s, to_s in job.sizes:
        x, width, height = LEFT + per_s * (from_s - first_s), per_s * (to_s - from_s), size * UNIT
        box = f'x="{x:.1f}" y="{floor - height:.1f}" width="{width:.1f}" height="{height}"'
        yield f'<rect {box} fill="{colour}"><title>{escape(job.name)}: {size}</title></rect>'


def _axis(y: float, until_s: float, per_s: float) -> Iterator[str]:
    yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" class="axis"/>'
    for at_s in range(0, int(until_s) + 1, 20):
        yield _text(LEFT + per_s * at_s, y + 16, f"{at_s} s", "middle quiet")
