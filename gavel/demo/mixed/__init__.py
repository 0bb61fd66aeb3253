"""The demo of mixed work: trainings, an interactive session and an inference service share the workers of this machine.

All of it is real: processes, rounds, HTTP clients that ask for what a curve says, and a visitor of the session who
comes through `gavel port-forward`.
"""

import shutil
import time
from pathlib import Path

from rich.console import Console

from gavel.demo import show as demo_show
from gavel.demo.mixed import show
from gavel.demo.mixed.picture import drawn
from gavel.demo.mixed.runs import ran
from gavel.demo.mixed.workload import CURVE, Piece, Training, trainings

STATE_DIR = Path(".demo-mixed")
PICTURE = "mixed.svg"
RUN_LIMIT_S = 210.0  # then it is cut off, and the checks say so
PLAIN_WIDTH = 120  # columns, where the output is no terminal that would know


def main(state_dir: Path = STATE_DIR, curve: tuple[Piece, ...] = CURVE, of: tuple[Training, ...] = ()) -> int:
    """Run the demo in a folder of the working directory; 0 only if every check held. `of`: trainings of another run."""
    console, began_s, workload = _console(), time.monotonic(), of or trainings()
    console.rule("[bold]Gavel: trainings, a session and a service")
    shutil.rmtree(state_dir, ignore_errors=True)

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    run = ran(curve, workload, state_dir, began_s + RUN_LIMIT_S, tell)
    console.print(show.pieces_table(run))
    console.print(show.trainings_table(run))
    picture = state_dir / PICTURE
    picture.write_text(drawn(run), encoding="utf-8")
    tell(f"The picture: {picture}")
    checks = [*show.checks(run, len(workload))]
    demo_show.print_checks(checks, console)
    tell(f"{time.monotonic() - began_s:.0f} s in all")
    return 0 if all(holds for holds, _ in checks) else 1


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)
