"""What every benchmark prints and writes: rows of name, value, unit, target, holds. It reports, it never fails."""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.reference import reference_cpu_s

CPU_SECONDS, REFERENCE = "CPU s", "of reference"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `target` is the most it may be (None: no target), or the least `at_least`; `holds` whether it is.

    A figure of an answer that is not `proven`, as one without a certificate, is a miss whatever it is. `is_detail`: it
    is written to the JSON, but not shown.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    proven: bool = True
    is_detail: bool = False

    @property
    def holds(self) -> bool | None:
        if not self.proven:
            return False
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def run(title: str, rows: Callable[[bool], Iterable[Row]], options: Sequence[str] | None = None) -> None:
    """Run a benchmark from its command line, or by these `options`: `--quick`, `--json FILE`."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, under 3 minutes")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    arguments = parser.parse_args(options)
    shown = list(_shown(rows(arguments.quick)))
    table = Table(title=title, title_justify="left")
    for column in ("what", "value", "unit", REFERENCE, "target", "holds"):
        table.add_column(column, justify="right" if column in ("value", REFERENCE, "target") else "left")
    for row in (each for each in shown if not each.is_detail):
        target = "" if row.target is None else f"{'≥ ' if row.at_least else ''}{row.target:g}"
        holds = {None: "", True: "yes", False: "[red]no"}[row.holds] + ("" if row.proven else ": not proven")
        ratio = over_reference(row)
        table.add_row(row.name, f"{row.value:.4g}", row.unit, "" if ratio is None else f"{ratio:.3g}", target, holds)
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps([_as_json(row) for row in shown], indent=1, allow_nan=False) + "\n")


def _as_json(row: Row) -> dict[str, object]:
    """The row as an object; a value that could not be measured is null."""
    value = row.value if math.isfinite(row.value) else None
    return asdict(row) | {"value": value, "holds": row.holds, "over_reference": over_reference(row)}


def over_reference(row: Row) -> float | None:
    """Return CPU seconds in units of the fixed workload of `reference`, which differ less between machines."""
    if row.unit != CPU_SECONDS or not math.isfinite(row.value):
        return None
    return row.value / reference_cpu_s()


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    with Console(stderr=True).status("measuring") as status:
        for row in rows:
            if not row.is_detail:  # a run that is ended early has told what it saw
                status.console.print(f"{row.name}: {row.value:.4g} {row.unit}", markup=False, highlight=False)
            yield row
