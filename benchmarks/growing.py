"""How long a gang of PyTorch does not train while it grows from 2 ranks to 4: by a hand-over, and in place.

    make bench-growing

A hand-over is what Gavel does: rank 0 saves, both ranks end, and four processes that have loaded the library already
build the model, load the checkpoint and meet. In place the two ranks stay: two processes that have even built the model
join them, and take parameters and the optimizer's state from rank 0. No service is part of it: what it does at a change
of size is the same in both ways. Needs `make frameworks-env`.
"""

import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.table import Row, run
from benchmarks.warm_starts import FRAMEWORKS

OLD, NEW = 2, 4  # ranks
LAYERS = (1, 16)  # of a million parameters each; with Adam's state a checkpoint has 12 bytes for each
LIMIT_S = 120.0
Order = tuple[str, list[object]]


class Rank:
    """A process of `growing_ranks`."""

    def __init__(self) -> None:
        command = [str(FRAMEWORKS), str(Path(__file__).with_name("growing_ranks.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, *orders: Order) -> None:
        """Let it do this."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()

    def answered(self) -> None:
        """Wait until it has done the last orders, or is ready. Raises RuntimeError where it ends, or takes too long."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            self._process.kill()
        if not self._process.stdout.readline():
            raise RuntimeError(f"a rank ended with {self._process.wait(LIMIT_S)}")

    def end(self) -> None:
        """Let it end, and wait for that."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(LIMIT_S)


def rows(quick: bool) -> Iterator[Row]:
    """Yield the median of each way, for each size of the model."""
    if not FRAMEWORKS.exists():
        print("left out: PyTorch is not there; run `make frameworks-env`", file=sys.stderr)
        return
    for layers in LAYERS:
        name = f"{1.05 * layers:.0f} million parameters: not training while 2 ranks become 4"
        for way, measured in (("by a hand-over", by_hand_over_s), ("in place", in_place_s)):
            yield Row(f"{name}, {way}", statistics.median(measured(layers) for _ in range(3 if quick else 7)), "s")


def by_hand_over_s(layers: int) -> float:
    """Return the seconds from the order to save until each rank of the new gang has trained a step."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = _started(OLD), _started(NEW)
        _all(old, [[("build", [layers]), ("join", [f"{folder}/old", rank, OLD]), ("step", [])] for rank in range(OLD)])
        began_s, file = time.monotonic(), f"{folder}/checkpoint"
        _all(old[:1], [[("save", [file])]])
        _end(old)
        orders: list[Order] = [("build", [layers]), ("load", [file])]
        _all(new, [[*orders, ("join", [f"{folder}/new", rank, NEW]), ("step", [])] for rank in range(NEW)])
        took_s = time.monotonic() - began_s
        _end(new)
    return took_s


def in_place_s(layers: int) -> float:
    """Return the seconds from the order to meet until each of the four ranks has trained a step."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = _started(NEW)
        _all(ranks, [[("build", [layers])]] * NEW)
        _all(ranks[:OLD], [[("join", [f"{folder}/old", rank, OLD]), ("step", [])] for rank in range(OLD)])
        began_s = time.monotonic()
        _all(ranks, [[("join", [f"{folder}/new", rank, NEW]), ("take", []), ("step", [])] for rank in range(NEW)])
        took_s = time.monotonic() - began_s
        _end(ranks)
    return took_s


def _started(count: int) -> list[Rank]:
    ranks = [Rank() for _ in range(count)]
    for each in ranks:
        each.answered()
    return ranks


def _all(ranks: Sequence[Rank], orders: Sequence[Sequence[Order]]) -> None:
    """Let all of them do their orders, and wait for the last."""
    for each, own in zip(ranks, orders, strict=True):
        each.tell(*own)
    for each in ranks:
        each.answered()


def _end(ranks: Sequence[Rank]) -> None:
    for each in ranks:
        each.end()


if __name__ == "__main__":
    run("Growing from 2 ranks to 4", rows)
