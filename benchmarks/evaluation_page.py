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


def merge(section: str, lines: Sequence[Sequence[str]], order: Sequence[str], page: Path = PAGE) -> None:
    """Put rows into the table of `section`, for those of the same run; the runs, in the second column, are in `order`.

    The first of the `lines` is the heads. Raise ValueError where the table has other ones, or the page no such section.
    """
    start, end = markers(section)
    _, _, rest = page.read_text().partition(f"{start}\n")
    title, _, table = rest.partition(end)[0].partition(":\n\n")
    heads, _, *there = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.strip().splitlines())
    if [cell for cell in lines[0] if cell] != [cell for cell in heads if cell]:
        raise ValueError(f"the table of {section!r} has other columns: write all of it")
    by_run = {row[1]: row for row in [*there, *lines[1:]]}
    place = {name: index for index, name in enumerate(order)}
    rows = sorted(by_run.values(), key=lambda row: place.get(row[1], len(place)))
    write(section, title, [lines[0], *rows], page)


def _table(lines: Sequence[Sequence[str]]) -> str:
    heads, *rest = lines
    rule = ["---"] * len(heads)
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, rule, *rest))
