"""What ranks use, sent by their nodes: without Ray."""

import os
from pathlib import Path

from gavel.backends.nodes.samples import take
from gavel.backends.utilization import BYTES_PER_ANSWER, read_utilization, utilization_path
from gavel.backends.utilization import read_new_samples as read_new

LINE = b'{"at_s": %d, "generation": 3, "ranks": [[%d, 0.5, 1024]]}\n'


def test_samples_are_sent_once_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    assert read_new(log, 0) == (b"", 0)
    utilization_path(log).write_bytes(LINE % (1, 0) + b'{"at_s": 2')
    text, offset = read_new(log, 0)
    assert (text, offset) == (LINE % (1, 0), len(text))
    with utilization_path(log).open("ab") as file:
        file.write((LINE % (2, 0)).removeprefix(b'{"at_s": 2'))
    assert read_new(log, offset) == (LINE % (2, 0), 2 * offset)


def test_after_thinning_only_what_is_new_is_sent(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    utilization_path(log).write_bytes(LINE % (1, 0))
    assert read_new(log, 1000) == (b"", len(LINE % (1, 0)))


def test_what_a_job_put_in_its_place_is_read_with_care(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    utilization_path(log).write_bytes(b"x" * 1_000_000)
    assert read_new(log, 0) == (b"x" * BYTES_PER_ANSWER, BYTES_PER_ANSWER)
    utilization_path(log).unlink()
    utilization_path(log).symlink_to("/etc/passwd")
    assert read_new(log, 0) == (b"", 0)
    utilization_path(log).unlink()
    os.mkfifo(utilization_path(log))
    assert read_new(log, 7) == (b"", 7)


def test_only_samples_of_the_nodes_own_ranks_are_kept(tmp_path: Path) -> None:
    """A line with several ranks stays one line; of another rank, another generation or no sample nothing stays."""
    both = b'{"at_s": 5, "generation": 3, "ranks": [[0, 0.5, 1], [1, 0.5, 2]]}\n'
    take(tmp_path / "j.log", LINE % (1, 7) + b"nonsense\n" + both + LINE % (9, 0), generation=3, ranks=(0, 1))
    take(tmp_path / "j.log", LINE % (10, 0), generation=4, ranks=(0, 1))
    kept = [(each.at_s, each.rank) for each in read_utilization(tmp_path / "j.log")]
    assert kept == [(5.0, 0), (5.0, 1), (9.0, 0)]
    assert utilization_path(tmp_path / "j.log").read_bytes().count(b"\n") == 2
