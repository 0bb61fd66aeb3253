"""A bounded log is read by offsets that mean the same before and after a rotation."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gavel.backends.logs import read_log
from gavel.backends.supervisor import Log, write_json

LIMIT_BYTES = 64
EXAMPLES = 300 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 20


class WrittenAndRead(RuleBasedStateMachine):
    """Whatever is written, and whoever writes, a read gives what was written at that offset."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.path = self.folder / f"log-{os.urandom(8).hex()}"
        self.log = Log(str(self.path), LIMIT_BYTES)
        self.written = b""
        self.is_cut_early = False

    @rule(output=st.binary(max_size=3 * LIMIT_BYTES))
    def write(self, output: bytes) -> None:
        self.log.write(output)
        self.written += output

    @rule()
    def another_gang_takes_over(self) -> None:
        self.log.close()
        self.log = Log(str(self.path), LIMIT_BYTES)

    @rule()
    def die_before_the_rename_of_a_rotation(self) -> None:
        rotation = {"inode": self.path.stat().st_ino, "end": len(self.written)}
        write_json(f"{self.path}.base", rotation)
        self.is_cut_early = True
        self.reads_what_was_written()
        self.another_gang_takes_over()

    @invariant()
    def reads_what_was_written(self) -> None:
        whole, end = read_log(self.path, 0, 1 << 20)
        assert end == len(self.written)
        assert self.written.endswith(whole)
        files = (self.path, self.path.with_name(self.path.name + ".1"))
        assert sum(file.stat().st_size for file in files if file.exists()) <= LIMIT_BYTES
        if len(self.written) <= LIMIT_BYTES // 2 and not self.is_cut_early:
            assert whole == self.written

    @rule(back=st.integers(0, 200), limit=st.integers(0, 100))
    def read_from_anywhere(self, back: int, limit: int) -> None:
        offset = max(0, len(self.written) - back)
        text, following = read_log(self.path, offset, limit)
        assert len(text) <= limit
        assert text == self.written[following - len(text) : following]
        oldest = len(self.written) - len(read_log(self.path, 0, 1 << 20)[0])
        assert following - len(text) == max(offset, oldest) or not text

    def teardown(self) -> None:
        self.log.close()


def test_reads_give_what_was_written(tmp_path: Path) -> None:
    WrittenAndRead.folder = tmp_path
    machine = WrittenAndRead.TestCase
    machine.settings = settings(max_examples=EXAMPLES, stateful_step_count=12)
    machine().runTest()


def test_a_reader_beside_a_writer_never_sees_a_wrong_byte(tmp_path: Path) -> None:
    """Byte i of the log is i modulo 251, so any piece shows where it is from."""
    path = tmp_path / "log"
    pattern = bytes(index % 251 for index in range(251 * 400))
    done = threading.Event()

    def write() -> None:
        log = Log(str(path), 1 << 10)
        for start in range(0, len(pattern), 97):
            log.write(pattern[start : start + 97])
        log.close()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    offset, pieces = 0, 0
    while not done.is_set() or not pieces:
        text, following = read_log(path, offset, 300)
        begins = following - len(text)
        assert begins >= offset
        assert text == pattern[begins:following]
        offset, pieces = following, pieces + bool(text)
    writer.join()
    assert pieces


def test_a_full_disk_loses_output_not_the_job(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), LIMIT_BYTES)
    log.close()
    log._file = os.open("/dev/full", os.O_WRONLY)
    log.write(b"lost")
    log.close()
    assert "No space left" in log.tail()


@pytest.mark.parametrize("offset", [0, 5, 10**12])
def test_a_log_that_is_not_there_is_empty(tmp_path: Path, offset: int) -> None:
    assert read_log(tmp_path / "log", offset, 100) == (b"", 0)


@pytest.mark.parametrize(
    "rotation",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"null",
        b'{"inode": 5}',
        b'{"inode": "x", "end": "y"}',
        b'{"inode": 5, "end": -1}',
        b'{"inode": 5, "end": 1' + 80 * b"0" + b"}",
        b'{"inode": 0, "end": 7}',
        1000 * b"[",
    ],
)
def test_a_damaged_file_between_the_two_costs_offsets_but_no_output(tmp_path: Path, rotation: bytes) -> None:
    path = tmp_path / "log"
    log = Log(str(path), 8)
    log.write(b"abcdefgh12")
    (tmp_path / "log.base").write_bytes(rotation)
    assert read_log(path, 0, 100) == (b"efgh12", 6)
    log.close()
    another = Log(str(path), 100)
    another.write(b"34")
    assert read_log(path, 0, 100)[0] == b"efgh1234"
    another.close()


def test_what_a_job_puts_in_the_place_of_its_log_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        assert read_log(tmp_path / name, 0, 100) == (b"", 0)
