"""What a job's processes use: sampled by the supervisor, bounded, read with care, shown."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import utilization_sampler
from gavel.backends.utilization import UtilizationSample, append_samples, read_utilization, utilization_path
from gavel.backends.utilization_sampler import Sampler
from tests.backends.test_supervisor import Gang


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilization_sampler, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(utilization_sampler, "EVERY_S", 0.0)


def test_a_rank_s_cores_and_memory_are_those_of_its_children_too(tmp_path: Path, at_once: None) -> None:
    """A rank whose child holds 64 MB and computes; another one that waits."""
    work = """
import os
kept = b"x" * (64 << 20)
end = os.times().user + 0.3
while os.times().user < end:
    pass
print(flush=True)
input()
"""
    shell = [f'{sys.executable} -c "$PROGRAM"; true']
    environment = os.environ | {"PROGRAM": work}
    busy = subprocess.Popen(["sh", "-c", *shell], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    idle = subprocess.Popen(["sleep", "60"])
    try:
        sampler = Sampler(str(utilization_path(tmp_path / "j.log")), 3)
        assert busy.stdout is not None and busy.stdout.readline() == b"\n"
        sampler.look({0: busy.pid, 1: idle.pid})
        first, second = read_utilization(tmp_path / "j.log")
        assert (first.rank, second.rank, first.generation) == (0, 1, 3)
        assert first.memory_bytes > 64 << 20 > second.memory_bytes > 0
        assert first.cpu_cores > 0 and second.cpu_cores < first.cpu_cores
    finally:
        busy.communicate(b"\n")
        idle.kill()
        idle.wait()


def test_a_supervisor_samples_its_ranks(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    gang.start("sleep", "2.4", ranks=2, generation=5)
    assert gang.exit()["exit_code"] == 0
    samples = read_utilization(gang.log)
    assert [(each.rank, each.generation) for each in samples] == [(0, 5), (1, 5)]


def test_a_long_job_keeps_samples_of_all_its_time_in_a_small_file(tmp_path: Path) -> None:
    """Three weeks, with a pause of a month after the first."""
    path = utilization_path(tmp_path / "j.log")
    week = 20_000  # samples
    for chunk in range(0, 3 * week, 1000):
        with path.open("a") as file:
            for index in range(chunk, chunk + 1000):
                at_s = 10.0 * (index + (0 if index < week else 5 * week))
                file.write(json.dumps({"at_s": at_s, "generation": 1, "ranks": [[0, 1.0, 5]]}) + "\n")
        if path.stat().st_size > 1 << 18:
            utilization_sampler.thin(str(path))
    samples = read_utilization(tmp_path / "j.log")
    assert path.stat().st_size < 1 << 19
    of_week = [sum(low <= each.at_s / 10 / week < low + 1 for each in samples) for low in (0, 6, 7)]
    assert min(of_week) > 200, of_week


def test_of_two_nodes_whose_samples_lie_close_none_is_left_out_for_the_other(tmp_path: Path) -> None:
    path = tmp_path / "j.log.utilization"
    lines = [
        json.dumps({"at_s": 10.0 * index + rank, "generation": 1, "ranks": [[rank, 1.0, 5]]})
        for index in range(4000)
        for rank in (0, 4)
    ]
    utilization_sampler.append_lines(str(path), lines)
    ranks = [each.rank for each in read_utilization(tmp_path / "j.log")]
    assert abs(ranks.count(0) - ranks.count(4)) <= 1 and 1000 < len(ranks) < 8000


def test_a_file_that_a_job_has_filled_with_nonsense_gets_smaller(tmp_path: Path) -> None:
    path = tmp_path / "j.log.utilization"
    path.write_text("".join(f'{{"at_s": {-1e9 * each}}}\n' for each in range(5000)) + "[" * 5000 + "\nx" * 50)
    before = path.stat().st_size
    utilization_sampler.thin(str(path))
    assert path.stat().st_size < before


def test_a_disk_that_is_full_loses_samples_and_nothing_else(at_once: None) -> None:
    Sampler("/dev/full", 1).look({0: os.getpid()})
    Sampler("/no/such/folder/j.log", 1).look({0: os.getpid()})


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.recursive(
                st.none() | st.floats() | st.text(),
                lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["at_s", "generation", "ranks"]), each),
            ).map(lambda value: json.dumps(value).encode()),
        )
    )
)
def test_whatever_a_job_wrote_into_the_file_only_samples_come_out(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    log = tmp_path_factory.mktemp("logs") / "j.log"
    good = b'{"at_s": 1.5, "generation": 2, "ranks": [[0, 0.5, 1024]]}'
    utilization_path(log).write_bytes(b"\n".join([*lines, good]) + b"\n")
    samples = read_utilization(log)
    assert samples[-1].memory_bytes == 1024 and all(math.isfinite(each.cpu_cores) for each in samples)


def test_a_link_or_a_pipe_in_its_place_is_not_read(tmp_path: Path) -> None:
    path = utilization_path(tmp_path / "j.log")
    path.symlink_to("/etc/passwd")
    assert read_utilization(tmp_path / "j.log") == ()
    path.unlink()
    os.mkfifo(path)
    assert read_utilization(tmp_path / "j.log") == ()


def test_samples_that_another_machine_took_come_out_as_they_went_in(tmp_path: Path) -> None:
    log, first = tmp_path / "job.log", UtilizationSample(at_s=1.0, generation=2, rank=0, cpu_cores=0.5, memory_bytes=7)
    second = replace(first, rank=1, accelerator_busy=0.25, accelerator_memory_bytes=9)
    append_samples(log, [[first, second], [replace(first, at_s=2.0)]])
    assert read_utilization(log) == (first, second, replace(first, at_s=2.0))
