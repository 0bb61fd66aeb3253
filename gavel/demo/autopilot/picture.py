"""The picture of the autopilot's demo, as SVG: the time of each set by its arrival, the phases, and the switches."""

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from gavel.demo.autopilot.replays import Cost, Switch

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 900, 430, 52, 12, 64, 40, 18
COLOURS = ("#064086", "#da6310", "#016833", "#dd65b6", "#5f011a", "#0a7c97", "#0a9f98")
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
STYLE = """
  svg { background: #ffffff }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 } .quiet { fill: #656d76 } .end { text-anchor: end }
  .axis { stroke: #8d96a0 } .phase { fill: #f2f4f7 } .switch { stroke: #1f2328; stroke-dasharray: 3 3 }
  .line { fill: none; stroke-width: 2 }
"""


def drawn(costs: Mapping[str, Cost], switches: Sequence[Switch], phases_s: Sequence[float]) -> str:
    """Return the picture: a line for each of `costs`, by the arrival of the sets; switches are upright lines."""
    until_s = max(at_s for cost in costs.values() for at_s, _ in cost.of_sets)
    most_s = max(seconds for cost in costs.values() for _, seconds in cost.of_sets)
    scale = _Scale(until_s, most_s)
    height = HEIGHT + LINE * (len(costs) + len(switches) + 1)
    parts = [*_phases(scale, phases_s, until_s), *_axes(scale, until_s, most_s), *_switches(scale, switches)]
    parts += [part for place, (title, cost) in enumerate(costs.items()) for part in _line(scale, place, title, cost)]
    parts += _names_of_switches(switches, HEIGHT + LINE * (len(costs) + 1))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return f"{head}<title>Time of each set of tasks</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"


class _Scale:
    """Where seconds of the run, and seconds of a set, are in the picture."""

    def __init__(self, until_s: float, most_s: float) -> None:
        self._x = (WIDTH - LEFT - RIGHT) / max(until_s, 1e-9)
        self._y = (HEIGHT - TOP - BOTTOM) / max(most_s, 1e-9)

    def x(self, at_s: float) -> float:
        return round(LEFT + self._x * at_s, 1)

    def y(self, seconds: float) -> float:
        return round(HEIGHT - BOTTOM - self._y * seconds, 1)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _phases(scale: _Scale, starts_s: Sequence[float], until_s: float) -> Iterator[str]:
    """Yield a band for every other phase, and the number of each."""
    ends_s = (*starts_s[1:], until_s)
    for number, (from_s, to_s) in enumerate(zip(starts_s, ends_s, strict=True), start=1):
        x, width = scale.x(from_s), scale.x(to_s) - scale.x(from_s)
        if number % 2 == 0:
            yield f'<rect x="{x}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}" class="phase"/>'
        yield _text(x + 4, TOP - 6, f"phase {number}", "quiet")


def _axes(scale: _Scale, until_s: float, most_s: float) -> Iterator[str]:
    yield _text(LEFT - 44, 20, "seconds from the arrival of a set to the end of its last task")
    yield f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" class="axis"/>'
    for part in (0.0, 0.5, 1.0):
        yield _text(LEFT - 6, scale.y(part * most_s) + 4, f"{part * most_s:.0f}", "end quiet")
        yield _text(scale.x(part * until_s), HEIGHT - BOTTOM + 16, f"{part * until_s:.0f} s", "end quiet")
    yield _text(WIDTH - RIGHT, HEIGHT - BOTTOM + 32, "arrival of the set", "end")


def _switches(scale: _Scale, switches: Sequence[Switch]) -> Iterator[str]:
    for number, (at_s, _) in enumerate(switches):
        x = min(scale.x(at_s), WIDTH - RIGHT)
        yield f'<path d="M{x} {TOP - 22}V{HEIGHT - BOTTOM}" class="switch"/>' + _text(x + 3, TOP - 20, chr(65 + number))


def _names_of_switches(switches: Sequence[Switch], from_y: float) -> Iterator[str]:
    for number, (at_s, composition) in enumerate(switches):
        yield _text(LEFT, from_y + LINE * number, f"{chr(65 + number)}: {composition} in force from {at_s:.0f} s on")


def _line(scale: _Scale, place: int, title: str, cost: Cost) -> Iterator[str]:
    """Yield the line of one run, and its line of the legend."""
    points = " ".join(f"{scale.x(at_s)},{scale.y(seconds)}" for at_s, seconds in cost.of_sets)
    look = f'stroke="{COLOURS[place % len(COLOURS)]}" stroke-dasharray="{DASHES[place % len(DASHES)]}" class="line"'
    yield f'<polyline points="{points}" {look}/>'
    y = HEIGHT + LINE * place
    yield f'<path d="M{LEFT} {y - 4}h34" {look}/>'
    yield _text(LEFT + 42, y, f"{title}, {'real run' if cost.is_real else 'replay'}: mean {cost.mean_s:.2f} s")
