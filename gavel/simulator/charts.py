"""Small line charts as SVG text: no script, no fonts or files from elsewhere, the same bytes for the same numbers."""

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#0891b2")
WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 40
POINTS_MAX = 400


def line_chart(title: str, x_label: str, series: Mapping[str, Points], *, log_x: bool = False) -> str:
    """One chart with a line per name; `log_x` leaves out points at or below 0."""
    kept = {name: _thinned([p for p in points if not log_x or p[0] > 0]) for name, points in series.items()}
    every = [point for points in kept.values() for point in points]
    if not every:
        return f"<figure><figcaption>{escape(title)}: nothing to show</figcaption></figure>"
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    x_ticks = _decades(low, high) if log_x else _ticks(low, high)
    y_ticks = _ticks(0.0, max(1e-9, *(y for _, y in every)))
    scale = _Scale(low, high, y_ticks[-1], log_x)
    parts = [_axes(scale, x_ticks, y_ticks, title, x_label)]
    for index, (name, points) in enumerate(kept.items()):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{line}"/>')
        parts.append(
            f'<text x="{LEFT + 8}" y="{TOP + 14 + 14 * index}" fill="{colour}" class="name">{escape(name)}</text>'
        )
    body = "".join(parts)
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


class _Scale:
    """From values to places on the chart."""

    def __init__(self, low: float, high: float, top: float, log_x: bool) -> None:
        self._log = log_x
        self._low, self._high = self._at(low), self._at(high)
        self._top = top

    def _at(self, x: float) -> float:
        return math.log10(x) if self._log else x

    def x(self, value: float) -> float:
        span = self._high - self._low or 1.0
        return LEFT + (self._at(value) - self._low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)


def _axes(scale: _Scale, x_ticks: Sequence[float], y_ticks: Sequence[float], title: str, x_label: str) -> str:
    parts = [f'<text x="{LEFT}" y="18" class="title">{escape(title)}</text>']
    for value in y_ticks:
        y = scale.y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in x_ticks:
        parts.append(f'<text x="{scale.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round values that cover [low, high]."""
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    inside = [round(index * step, 12) for index in range(first, last + 1)]
    return [value for value in inside if value >= low - 1e-12] or [low]


def _decades(low: float, high: float) -> list[float]:
    exponents = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [10.0**exponent for exponent in exponents] or [low]


def _thinned(points: Points) -> Points:
    stride = max(1, math.ceil(len(points) / POINTS_MAX))
    return [*points[::stride], *points[-1:]]
