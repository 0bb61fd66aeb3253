"""The picture of the demo of mixed work, as SVG: whose the workers were over time, and what the service was asked."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from gavel.demo.mixed.runs import Ran, Sample
from gavel.demo.mixed.workload import WORKERS, piece_at

WIDTH, LEFT, RIGHT, TOP, UNIT, GAP, CURVE_HEIGHT = 900, 64, 12, 34, 22, 56, 90
PARTS = {"session": "#b5408c", "serves": "#da6310", "trains": "#064086"}  # from the bottom up
NAMES = {"session": "session", "serves": "replicas of the service", "trains": "training"}
STYLE = """
  svg { background: #ffffff }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 } .quiet { fill: #656d76 } .end { text-anchor: end }
  .middle { text-anchor: middle } .axis { stroke: #8d96a0; fill: none }
  .asked { stroke: #016833; fill: none; stroke-width: 2 }
"""


def drawn(run: Ran) -> str:
    """Return the picture: a column of workers for each look at the cluster, and below it requests per second."""
    until_s = max(each.at_s for each in run.samples)
    per_s = (WIDTH - LEFT - RIGHT) / max(until_s, 1e-9)
    floor = TOP + WORKERS * UNIT
    bottom = floor + GAP + CURVE_HEIGHT
    parts = [
        *_legend(),
        *_workers(run.samples, floor, per_s),
        _text(LEFT - 8, floor - WORKERS * UNIT + 10, str(WORKERS), "end quiet"),
        _text(LEFT - 8, floor, "0", "end quiet"),
        *_curve(run, until_s, bottom, per_s),
        *_axis(bottom, until_s, per_s),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img">'
    return f"{head}<title>Whose the workers were</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _legend() -> Iterator[str]:
    yield _text(LEFT, TOP - 14, "Workers of")
    for place, (part, colour) in enumerate(PARTS.items()):
        x = LEFT + 90 + 190 * place
        yield f'<rect x="{x}" y="{TOP - 24}" width="12" height="12" fill="{colour}" class="key"/>'
        yield _text(x + 18, TOP - 14, NAMES[part])


def _workers(samples: Sequence[Sample], floor: float, per_s: float) -> Iterator[str]:
    """Yield a box for each part that holds workers, from the instant of a sample to that of the next other one."""
    until = zip(samples, (*samples[1:], samples[-1]), strict=True)
    for held, group in groupby(until, key=lambda pair: [getattr(pair[0], part) for part in PARTS]):
        pairs = list(group)
        from_s, to_s, y = pairs[0][0].at_s, pairs[-1][1].at_s, floor
        for workers, colour in zip(held, PARTS.values(), strict=True):
            y -= UNIT * workers
            if workers and to_s > from_s:
                size = f'width="{per_s * (to_s - from_s):.1f}" height="{UNIT * workers}"'
                yield f'<rect x="{LEFT + per_s * from_s:.1f}" y="{y}" {size} fill="{colour}"/>'


def _curve(run: Ran, until_s: float, bottom: float, per_s: float) -> Iterator[str]:
    """Yield the requests per second that were sent, in each second."""
    counts = [0] * (int(until_s) + 1)
    for each in run.asked:
        if each.at_s <= until_s:
            counts[int(each.at_s)] += 1
    most = max(each.requests_per_s for each in run.curve)
    height = CURVE_HEIGHT / max(most, *counts)
    last = max((second for second in range(len(counts)) if piece_at(run.curve, second) is not None), default=0)
    places = ((LEFT + per_s * (at_s + 0.5), bottom - height * number) for at_s, number in enumerate(counts[: last + 1]))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield _text(LEFT, bottom - CURVE_HEIGHT - 14, "Requests per second")
    yield _text(LEFT - 8, bottom - height * most + 4, f"{most:g}", "end quiet")
    yield f'<polyline points="{points}" class="asked"/>'


def _axis(y: float, until_s: float, per_s: float) -> Iterator[str]:
    yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" class="axis"/>'
    for at_s in range(0, int(until_s) + 1, 20):
        yield _text(LEFT + per_s * at_s, y + 16, f"{at_s} s", "middle quiet")
