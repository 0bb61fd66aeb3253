"""Small line charts as SVG and HTML text: no script, no fonts or files from elsewhere, the same bytes for the same
numbers. Titles and legends are HTML, which wraps; the legend stands beside the curves, below them on a narrow screen.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

Points = Sequence[tuple[float, float]]
Family = Literal["policy", "type", "tier"]
"""What the lines of a chart stand for; each family has colours of its own."""

COLOURS: Mapping[Family, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "policy": (
        ("#064086", "#da6310", "#016833", "#dd65b6", "#5f011a", "#0a7c97"),
        ("#0f94fa", "#fec883", "#0d8a38", "#ff8acb", "#f2f4c3", "#26d0e7"),
    ),
    "type": (
        ("#033b3d", "#0a9f98", "#5f821b", "#424b01", "#056a69", "#012516"),
        ("#9af8f1", "#0a938d", "#cdda62", "#8ea53c", "#26c7c5", "#09797c"),
    ),
    "tier": (
        ("#282d89", "#9489c6", "#7c3b2b", "#ac6c4f", "#784db0", "#301c36"),
        ("#eddcfe", "#9278ce", "#d58866", "#febf94", "#c0a6f7", "#6f6698"),
    ),
}
"""On white and on a dark page. Within a family colours differ in lightness, so that they differ for everybody, also in
print; each has a contrast of at least 3 to its page (WCAG 2.2, 1.4.11). Lines beyond the sixth differ by their dashes.
"""

DASHES = ("none", "7 3", "2 3", "9 3 2 3")
WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 26, 42
POINTS_MAX = 400


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes are called, with units. `is_log`: x is logarithmic, and points at or below 0 are left out."""

    x: str
    y: str
    is_log: bool = False


def line_chart(title: str, axes: Axes, series: Mapping[str, Points], family: Family) -> str:
    """Return one chart with a line and a place in the legend for each name; "" where there is no point to show."""
    kept = {name: [p for p in points if not axes.is_log or p[0] > 0] for name, points in series.items()}
    every = [point for points in kept.values() for point in points]
    if not every:
        return ""
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    x_ticks = _decades(low, high) if axes.is_log else [value for value in _ticks(low, high) if value <= high] or [low]
    y_ticks = _ticks(0.0, max(1e-9, *(y for _, y in every)))
    scale = _Scale(low, high, y_ticks[-1], axes.is_log)
    lines = [_line(scale, _thinned(points), family, index) for index, points in enumerate(kept.values())]
    entries = [_entry(name, family, index) for index, name in enumerate(kept)]
    return (
        f'<figure><figcaption>{breakable(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}">{_axes(scale, x_ticks, y_ticks, axes)}{"".join(lines)}</svg>'
        f'<ul class="legend">{"".join(entries)}</ul></figure>'
    )


def averaged(points: Points) -> list[tuple[float, float]]:
    """Return at most POINTS_MAX points: the means of neighbours, so that a line that jumps about can be read."""
    size = max(1, math.ceil(len(points) / POINTS_MAX))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def breakable(text: str) -> str:
    """Return `text` as HTML that may break after each mark of punctuation, as long names of policies have to."""
    return re.sub(r"([_?=/,])(?=\w)", r"\1<wbr>", escape(text, quote=False))


def style(family: Family) -> str:
    """Return the CSS of a family's colours, on a light page and on a dark one."""
    light, dark = (
        "".join(f"--{family}-{index}:{colour};" for index, colour in enumerate(colours)) for colours in COLOURS[family]
    )
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _stroke(family: Family, index: int) -> str:
    """Return the colour and dashes of the line with this number, counted from 0."""
    count = len(COLOURS[family][0])
    dash = DASHES[index // count % len(DASHES)]
    return f'style="stroke:var(--{family}-{index % count})" stroke-dasharray="{dash}"'


def _line(scale: "_Scale", points: Points, family: Family, index: int) -> str:
    places = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
    return f'<polyline class="line" {_stroke(family, index)} points="{places}"/>'


def _entry(name: str, family: Family, index: int) -> str:
    sample = (
        f'<svg class="sample" viewBox="0 0 28 8"><line class="line" x2="28" y1="4" y2="4" {_stroke(family, index)}/>'
    )
    return f"<li>{sample}</svg><span>{breakable(name)}</span></li>"


class _Scale:
    """Maps values to positions on the chart."""

    def __init__(self, low: float, high: float, top: float, is_log: bool) -> None:
        self._is_log = is_log
        self._low, self._high = self._at(low), self._at(high)
        self._top = top

    def _at(self, x: float) -> float:
        return math.log10(x) if self._is_log else x

    def x(self, value: float) -> float:
        span = self._high - self._low or 1.0
        return LEFT + (self._at(value) - self._low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)


def _axes(scale: _Scale, x_ticks: Sequence[float], y_ticks: Sequence[float], axes: Axes) -> str:
    parts = [f'<text x="4" y="14">{escape(axes.y)}</text>']
    for value in y_ticks:
        y = scale.y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in x_ticks:
        x = scale.x(value)
        anchor = "end" if x > WIDTH - 20 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="{anchor}">{value:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(axes.x)}</text>')
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return four to eight round values within [low, high]; the last one is at or above `high` if `low` is 0."""
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    inside = [round(index * step, 12) for index in range(first, last + 1)]
    return [value for value in inside if value >= low - 1e-12] or [low]


def _decades(low: float, high: float) -> list[float]:
    """Return the powers of ten within [low, high], with 2 and 5 between them where there are fewer than three."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        inside = [factor * 10.0**each for each in exponents for factor in factors if low <= factor * 10.0**each <= high]
        if len(inside) >= 3:
            return inside
    return inside or [low]


def _thinned(points: Points) -> Points:
    stride = max(1, math.ceil(len(points) / POINTS_MAX))
    return [*points[::stride], *points[-1:]]
