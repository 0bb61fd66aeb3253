"""Writes tables of benchmarks into pages of docs (docs/evaluation.md), each between the two markers of its section."""

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "evaluation.md"


def markers(section: str, by: str = "bench-evaluation") -> tuple[str, str]:
    """Return the lines before and after what is written into a section."""
    return f"<!-- {section}: written by make {by} -->", f"<!-- end of {section} -->"


def write(
    section: str, title: str, lines: Sequence[Sequence[str]], page: Path = PAGE, by: str = "bench-evaluation"
) -> None:
    """Replace what stands between the markers of `section` by a table; the first of the `lines` is its heads.

    Raise ValueError where the page has no such section.
    """
    text = page.read_text()
    start, end = markers(section, by)
    before, found_start, rest = text.partition(f"{start}\n")
    _, found_end, after = rest.partition(end)
    if not (found_start and found_end):
        raise ValueError(f"{page.name} has no section {section!r}: add the lines {start!r} and {end!r}")
    page.write_text(f"{before}{start}\n{title}:\n\n{_table(lines)}\n{end}{after}")


def _table(lines: Sequence[Sequence[str]]) -> str:
    heads, *rest = lines
    rule = ["---"] * len(heads)
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, rule, *rest))
