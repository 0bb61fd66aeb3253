"""Tables that fit the terminal: where it is narrow, the least important columns are left out, and a line says so."""

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

GAP = 2
LONG_MIN = 20  # characters that a long text gets at least; columns are left out for it


class Rows:
    """A table with one line per row. `spare` columns are left out first, in this order; `long` ones may be folded."""

    def __init__(self, *columns: str, spare: Sequence[str] = (), long: Sequence[str] = ()) -> None:
        self.columns = columns
        self.title: str | None = None
        self.caption: str | None = None
        self._spare = spare
        self._long = long
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add one row, a cell for each column."""
        self._rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def fits(self, width: int) -> bool:
        """Return whether it fits once all spare columns are left out."""
        return self._width([name for name in self.columns if name not in self._spare]) <= width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table, and a line that names the columns left out."""
        kept = list(self.columns)
        left_out = []
        for name in self._spare:
            if self._width(kept) <= options.max_width:
                break
            kept.remove(name)
            left_out.append(name)
        yield self._table(kept)
        notes = [self.caption] if self.caption else []
        if left_out and self._rows:
            notes.append(f"no room for {', '.join(left_out)}: use a wider terminal, or --json")
        if notes:
            yield Text("\n".join(notes), style="dim italic")

    def _width(self, names: Sequence[str]) -> int:
        return sum(self._column_width(name) for name in names) + GAP * (len(names) - 1)

    def _column_width(self, name: str) -> int:
        at = self.columns.index(name)
        widest = max((line.cell_len for row in self._rows for line in row[at].split()), default=0)
        return max(len(name), min(widest, LONG_MIN) if name in self._long else widest)

    def _table(self, names: Sequence[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", title=self.title, title_justify="left")
        for name in names:
            table.add_column(name, overflow="fold", no_wrap=name in {"JOB", "STATE", "AT"})
        for row in self._rows:
            table.add_row(*(row[self.columns.index(name)] for name in names))
        return table


class FirstThatFits:
    """One answer in several forms: the first one that fits the terminal is shown, else the last."""

    def __init__(self, *shapes: Rows) -> None:
        self._shapes = shapes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the form that is shown."""
        yield next((each for each in self._shapes if each.fits(options.max_width)), self._shapes[-1])
