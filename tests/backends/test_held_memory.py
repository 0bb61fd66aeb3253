"""What gangs hold on their accelerators, on its way from the samples to their reports."""

import json
from pathlib import Path

from gavel.backends.held_memory import HeldMemory
from gavel.backends.utilization import utilization_path


def write(log: Path, generation: int, *ranks: list[float]) -> None:
    with utilization_path(log).open("a") as file:
        file.write(json.dumps({"at_s": 1.0, "generation": generation, "ranks": ranks}) + "\n")


def test_the_most_on_one_accelerator_since_the_last_look_counts(tmp_path: Path) -> None:
    log, held = tmp_path / "j.log", HeldMemory()
    assert held.newest_bytes(("j", 2), log) == 0
    write(log, 1, [0, 1.0, 5, 0.5, 900])  # an earlier gang of the job
    write(log, 2, [0, 1.0, 5, 0.5, 100], [1, 1.0, 5, 0.5, 300])
    write(log, 2, [0, 1.0, 5, 0.5, 200], [1, 1.0, 5, 0.5, 250])
    assert held.newest_bytes(("j", 2), log) == 300
    assert held.newest_bytes(("j", 2), log) == 0
    write(log, 2, [0, 1.0, 5, 0.5, 120])
    assert held.newest_bytes(("j", 2), log) == 120
    held.forget(("j", 2))
    assert held.newest_bytes(("j", 2), log) == 300  # as after a restart


def test_ranks_without_an_accelerator_and_lines_that_are_none_say_nothing(tmp_path: Path) -> None:
    log = tmp_path / "j.log"
    write(log, 1, [0, 1.0, 5])
    with utilization_path(log).open("a") as file:
        file.write("not a sample\n")
    assert HeldMemory().newest_bytes(("j", 1), log) == 0
