"""Draws the two pictures of docs/estimator.md from the published matrix: calibration, and error against the budget.

usage: GAVEL_DATA=FOLDER .venv/bin/python -m scripts.estimator_pictures          (about a minute)
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from benchmarks.estimator import NOISE, Published, drawn, published
from benchmarks.nearest import lent, nearest_reference
from gavel.estimator.colocation import complete

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
DRAWS = 4
REFERENCES = 16
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
WIDTH, HEIGHT, MARGIN = 460, 320, 50
Line = tuple[str, str, Sequence[tuple[float, float]]]  # name, colour, points


def main() -> int:
    truth = published()
    if truth is None:
        return 1
    (PICTURES / "estimator-calibration.svg").write_text(calibration(truth))
    (PICTURES / "estimator-budget.svg").write_text(budget(truth))
    return 0


def calibration(truth: Published) -> str:
    """How often the interval of each stated level holds the truth."""
    lines: list[Line] = [("exact", "#999999", [(0.0, 0.0), (1.0, 1.0)])]
    for share, colour in ((0.1, "#d95f02"), (0.2, "#1b6ca8"), (0.4, "#2a9d58")):
        distances = []
        for seed in range(DRAWS):
            _, table, profiles = drawn(truth, REFERENCES, share, seed)
            completed = complete(table, profiles, noise=NOISE)
            distances.append(np.abs(completed.rate - truth.colocated) / completed.deviation)
        held = [(level, float(np.mean(np.array(distances) <= ndtri(0.5 + level / 2)))) for level in LEVELS]
        lines.append((f"{share:.0%} profiled", colour, held))
    return drawing("Stated intervals of pair rates", "stated", "holds the truth", lines, (1.0, 1.0))


def budget(truth: Published) -> str:
    """Mean error of normalised pair rates against the share of pairs profiled."""
    ours, theirs = [], []
    for share in SHARES:
        errors = []
        for seed in range(DRAWS):
            _, table, profiles = drawn(truth, REFERENCES, share, seed)
            completed = complete(table, profiles, noise=NOISE).rate
            borrowed = lent(table, nearest_reference(table, profiles))
            errors.append([np.abs(each - truth.colocated).mean() for each in (completed, borrowed)])
        mean = np.mean(errors, axis=0)
        ours.append((share, float(mean[0])))
        theirs.append((share, float(mean[1])))
    lines: list[Line] = [("nearest reference", "#d95f02", theirs), ("completion", "#1b6ca8", ours)]
    return drawing(
        "Error of pair rates, 16 reference kinds", "share of pairs profiled", "mean error", lines, (1.0, 0.25)
    )


def drawing(title: str, across: str, up: str, lines: Sequence[Line], limits: tuple[float, float]) -> str:
    """An SVG with axes from 0 to the limits."""
    right, bottom = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(x: float, y: float) -> str:
        return f"{MARGIN + right * x / limits[0]:.1f},{HEIGHT - MARGIN - bottom * min(y / limits[1], 1):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="14">{title}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">{across}</text>',
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">{up}</text>',
    ]
    for step in range(6):
        x, y = limits[0] * step / 5, limits[1] * step / 5
        left, down = place(0, y), place(x, 0)
        parts.append(f'<polyline points="{left} {place(limits[0], y)}" stroke="#dddddd" fill="none"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{left.split(",")[1]}" text-anchor="end">{y:.2g}</text>')
        parts.append(f'<text x="{down.split(",")[0]}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{x:.2g}</text>')
    for row, (name, colour, points) in enumerate(lines):
        path = " ".join(place(x, y) for x, y in points)
        parts.append(f'<polyline points="{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts.append(f'<text x="{MARGIN + 12}" y="{MARGIN + 14 * (row + 1)}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
