"""The demo of elastic jobs: six trainings with gangs of one size, then the same six with gangs that grow and shrink.

Both runs are real, one after the other on this machine. Each says what it trained, so that the demo can show that a
change of size changes when a job ends, and not what it learns.
"""

import shutil
import time
from pathlib import Path

from rich.console import Console

from gavel.demo import show as demo_show
from gavel.demo.elastic import show
from gavel.demo.elastic.picture import drawn
from gavel.demo.elastic.runs import Ran, ran
from gavel.demo.elastic.workload import ElasticJob, jobs

STATE_DIR = Path(".demo-elastic")
PICTURE = "elastic.svg"
RUN_LIMIT_S = 135.0  # of each run: then it is cut off, and the checks say so
PLAIN_WIDTH = 120  # columns, where the output is no terminal that would know


def main(state_dir: Path = STATE_DIR, of: tuple[ElasticJob, ...] = ()) -> int:
    """Run the demo in a folder of the working directory; 0 only if every check held. `of`: its jobs, if not its own."""
    console, began_s, workload = _console(), time.monotonic(), of or jobs()
    console.rule("[bold]Gavel: jobs that grow and shrink")
    shutil.rmtree(state_dir, ignore_errors=True)
    rigid, elastic = (_ran(console, workload, state_dir, is_elastic=is_elastic) for is_elastic in (False, True))
    checks = [*show.checks(rigid, elastic, len(workload))]
    if len(rigid.trained) == len(elastic.trained) == len(workload):  # else there is nothing to compare
        console.print(show.jobs_table(rigid, elastic))
        for note in show.notes(rigid, elastic):
            console.print(note, markup=False, highlight=False)
        picture = state_dir / PICTURE
        picture.write_text(drawn(rigid, elastic), encoding="utf-8")
        console.print(f"The picture: {picture}", markup=False, highlight=False)
    demo_show.print_checks(checks, console)
    console.print(f"{time.monotonic() - began_s:.0f} s in all", highlight=False)
    return 0 if all(holds for holds, _ in checks) else 1


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _ran(console: Console, workload: tuple[ElasticJob, ...], state_dir: Path, *, is_elastic: bool) -> Ran:
    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    folder = state_dir / ("elastic" if is_elastic else "rigid")
    return ran(workload, folder, time.monotonic() + RUN_LIMIT_S, tell, is_elastic=is_elastic)
