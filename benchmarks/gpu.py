"""What pairs of training programs do to each other on a GPU, and whether the estimator foresees it.

With a GPU and PyTorch (the extra `torch`) the kinds of gpu_programs.py are measured here, each alone and each pair, and
the table of this type in the folder `measured` is written anew. Its format is the published one, which `gavel simulate
--throughputs` reads. Then, on each table there: what packing is worth, and how well the service's estimator completes
the pairs that were not tried.
"""

import json
import time
from collections.abc import Iterator
from itertools import combinations_with_replacement
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.estimator import Published, any_pairs_rows
from benchmarks.table import Row, run
from gavel.backends.accelerators import discover
from gavel.types import FloatArray

MEASURED = Path(__file__).with_name("measured")
WARM_STEPS, WARM_S, WINDOW_S = 5, 0.5, 1.5
START_LIMIT_S, WINDOW_LIMIT_S = 300.0, 60.0
DRAWS = 10


def rows(quick: bool) -> Iterator[Row]:
    """Measure where there is a GPU, then yield the rows of each table."""
    gpu = next((each for each in discover().accelerators if each.is_gpu), None)
    if gpu is not None:
        table = measured(WINDOW_S / 2 if quick else WINDOW_S)
        MEASURED.mkdir(exist_ok=True)
        _write(MEASURED / f"{gpu.worker.accelerator_type}.json", gpu.worker.accelerator_type, table)
    for path in sorted(MEASURED.glob("*.json")):
        truth = Published(path, [path.stem])
        yield from packing(path.stem, truth.colocated[0])
        yield from any_pairs_rows(truth, DRAWS, path.stem)


# --- measuring --------------------------------------------------------------------------------------------------------


class Program:
    """A process that trains a kind whenever it is told to."""

    def __init__(self, kind: str, device: str) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_train, args=(kind, device, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that its end is noticed

    def starts(self) -> bool:
        """Return whether it is ready; it is not if it does not fit in the memory beside the others."""
        try:
            return self.wait(START_LIMIT_S) == 0
        except (EOFError, TimeoutError):
            return False

    def wait(self, limit_s: float) -> float:
        """Return what it says next. Raises TimeoutError, and EOFError if it has ended."""
        if not self._pipe.poll(limit_s):
            raise TimeoutError
        answer: float = self._pipe.recv()
        return answer

    def train(self, start_s: float, end_s: float) -> None:
        """Train between these instants of the monotonic clock; `wait` then gives the steps per second."""
        self._pipe.send((start_s, end_s))

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _train(kind: str, device: str, pipe: Connection) -> None:
    """Train a kind in the windows that the pipe names."""
    from benchmarks.gpu_programs import Setting, built

    step = built(kind, Setting(device, is_tiny=device == "cpu"))
    for _ in range(WARM_STEPS):
        step()
    pipe.send(0.0)
    while True:
        start_s, end_s = pipe.recv()
        time.sleep(max(0.0, start_s - time.monotonic()))
        ended_s = []
        while time.monotonic() < end_s:
            step()
            ended_s.append(time.monotonic())
        counted = [each for each in ended_s if each >= start_s + WARM_S]
        pipe.send((len(counted) - 1) / (counted[-1] - counted[0]) if len(counted) > 1 else 0.0)


def measured(window_s: float, device: str = "cuda") -> dict[tuple[str, str | None], float]:
    """Return the steps per second of each kind alone (with None), and beside each kind, its own included."""
    from benchmarks.gpu_programs import KINDS

    programs = {(kind, copy): Program(kind, device) for kind in KINDS for copy in (0, 1)}
    try:
        failed = {kind for (kind, _), program in programs.items() if not program.starts()}
        print(f"without {', '.join(sorted(failed)) or 'none'}: these did not start", flush=True)
        kinds = [kind for kind in KINDS if kind not in failed]
        table: dict[tuple[str, str | None], float] = {}
        for kind in kinds:
            (table[kind, None],) = _together([programs[kind, 0]], window_s)
        for one, other in combinations_with_replacement(kinds, 2):
            both = _together([programs[one, 0], programs[other, 1]], window_s)
            table[one, other], table[other, one] = both if one != other else [float(np.mean(both))] * 2
        return table
    finally:
        for program in programs.values():
            program.end()


def _together(programs: list[Program], window_s: float) -> list[float]:
    start_s = time.monotonic() + 0.02
    for program in programs:
        program.train(start_s, start_s + WARM_S + window_s)
    return [program.wait(WINDOW_LIMIT_S) for program in programs]


def _write(path: Path, accelerator_type: str, table: dict[tuple[str, str | None], float]) -> None:
    """Write rates in the published format."""
    kinds = list(dict.fromkeys(kind for kind, _ in table))
    content = {
        str((kind, 1)): {"null": round(table[kind, None], 3)}
        | {str((each, 1)): [round(table[kind, each], 3), round(table[each, kind], 3)] for each in kinds}
        for kind in kinds
    }
    path.write_text(json.dumps({accelerator_type: content}, indent=1) + "\n")


# --- what the tables say ----------------------------------------------------------------------------------------------


def packing(name: str, colocated: FloatArray) -> Iterator[Row]:
    """What two programs do together, in rates alone, (n, n): 1 is what they do one after the other."""
    rates = np.minimum(colocated, 1.0)
    both = (rates + rates.T)[np.triu_indices(len(rates))]
    yield Row(f"{name}: pairs that do more together than in turns", float((both > 1).mean() * 100), "%")
    yield Row(f"{name}: what a pair does together, median", float(np.median(both)), "of one alone")
    yield Row(f"{name}: the same, best pair", float(both.max()), "of one alone")


if __name__ == "__main__":
    run("Pairs of programs on a GPU", rows)
