"""Draws what each library of ephemeral resources does on a few nodes, for docs/ephemeral-resources.md.

usage: .venv/bin/python -m scripts.ephemeral_pictures [FOLDER]          (default: docs/pictures/ephemeral)
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from scripts.drawn import main
from scripts.ephemeral_scenes import SCENES, Frame, Stage

PICTURES = Path(__file__).parents[1] / "docs" / "pictures" / "ephemeral"
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .quiet { fill: #656d76 } .middle { text-anchor: middle } .on { fill: #ffffff; font-size: 10px }
  .chip { font-size: 11px }
  .node { fill: none; stroke: #afb8c1 } .free { fill: #eaeef2 } .name { fill: #fff8c5; stroke: #d4a72c }
  .a { fill: #0969da } .b { fill: #2da44e } .c { fill: #bc4c00 } .x { fill: #656d76 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .node { stroke: #444c56 } .free { fill: #30363d }
    .name { fill: #3b2e00; stroke: #9e6a03 } .on { fill: #ffffff }
  }
"""
NODE_WIDTH, GAP, CELL, CHIP, MARGIN = 132, 12, 26, 20, 8


def draw_frame(frame: Frame, top: int, chip_rows: int) -> Iterator[str]:
    yield f'<text x="{MARGIN}" y="{top + 12}">{escape(frame.caption)}</text>'
    height = CELL + CHIP * chip_rows + 12
    for index, (node, (cells, names)) in enumerate(frame.nodes.items()):
        left, y = MARGIN + index * (NODE_WIDTH + GAP), top + 22
        yield f'<rect x="{left}" y="{y}" width="{NODE_WIDTH}" height="{height + 16}" rx="6" class="node"/>'
        yield f'<text x="{left + 8}" y="{y + 16}" class="quiet">{node}</text>'
        for place, task in enumerate(cells):
            x, colour = left + 8 + place * 28, task[0] if task else "free"
            yield f'<rect x="{x}" y="{y + 22}" width="{CELL}" height="18" rx="3" class="{colour}"/>'
            yield f'<text x="{x + CELL / 2}" y="{y + 35}" class="middle on">{task}</text>'
        for place, name in enumerate(names):
            at = y + 46 + place * CHIP
            yield f'<rect x="{left + 8}" y="{at}" width="{NODE_WIDTH - 16}" height="16" rx="8" class="name"/>'
            yield f'<text x="{left + NODE_WIDTH / 2}" y="{at + 12}" class="middle chip">{name}</text>'
    if frame.waiting:
        right = MARGIN + len(frame.nodes) * (NODE_WIDTH + GAP)
        yield f'<text x="{right}" y="{top + 38}" class="quiet">waiting</text>'
        yield f'<text x="{right}" y="{top + 56}">{" ".join(frame.waiting)}</text>'


def svg(stage: Stage) -> str:
    """The stage's frames, one below the other."""
    chip_rows = max(len(names) for frame in stage.frames for _, names in frame.nodes.values())
    each = CELL + CHIP * chip_rows + 64
    width = max(len(stage.frames[0].nodes) * (NODE_WIDTH + GAP) + 110, 480) + MARGIN
    height = each * len(stage.frames) + MARGIN
    body = "\n".join(line for i, frame in enumerate(stage.frames) for line in draw_frame(frame, i * each, chip_rows))
    label = escape("; ".join(frame.caption for frame in stage.frames), {'"': "&quot;"})
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">
<style>{STYLE}</style>
{body}
</svg>
"""


def draw(folder: Path) -> list[Path]:
    """One picture for each library; returns the files written."""
    written = []
    for scene in SCENES:
        stage = Stage()
        scene(stage)
        written.append(folder / f"{scene.__name__}.svg")
        written[-1].write_text(svg(stage))
    return written


if __name__ == "__main__":
    sys.exit(main(draw, PICTURES))
