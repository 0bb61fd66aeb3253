"""An input as its reader sends it: a process of the job's user, which alone talks to servers (input_reader.py).

Standard library only. A request is a line of JSON: ["open", URL, HOSTS] first, then ["files"] or ["read", FILE], as
often as wanted. Each is answered with frames, a kind and a size before the content: of `files` one with JSON, of
`read` the content and an empty one, of what fails the sentence. A server or a variable of the job may have taken the
reader over, so what it sends is bounded and checked.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple, Protocol

from gavel.backends.output import shortened
from gavel.backends.preparation import PreparationFailed

HEADER = struct.Struct(">cI")
FILES, CONTENT, PROBLEM = b"f", b"c", b"p"
CHUNK_BYTES = 1 << 20
FILES_MAX = 100_000
FRAME_BYTES_MAX = 1 << 27
PROBLEM_CHARACTERS = 2_000
TAGS = (
    *("ETag", "etag", "md5Hash", "crc32c", "content_md5", "blob_id"),
    *("LastModified", "last_modified", "updated", "mtime", "modify", "modified"),
)
"""What drivers call that which changes with the content, the surest first."""


class Changed(OSError):
    """What came is not what was announced."""


class SourceFile(NamedTuple):
    """A file of an input: its path below it ("": the input is this file), and what says that it is another version."""

    path: str
    size_bytes: int | None
    tag: str


class Source(Protocol):
    """One input at its URL. Every call raises what its library raises."""

    def files(self) -> list[SourceFile]:
        """Return the files that are there now, in order."""

    def read(self, file: SourceFile) -> Iterator[bytes]:
        """Yield the content of a file."""


def sentence_of(problem: Exception) -> str:
    """Return what a failure is to the user of the job."""
    is_plain = isinstance(problem, OSError | PreparationFailed)
    return str(problem) if is_plain else f"{type(problem).__name__}: {problem}"


def send(answers: IO[bytes], kind: bytes, content: bytes = b"") -> None:
    """Send one frame."""
    answers.write(HEADER.pack(kind, len(content)) + content)
    answers.flush()


class ReaderSource:
    """What a reader at the other end of two pipes reads. Every call raises PreparationFailed."""

    def __init__(self, requests: int, answers: IO[bytes], url: str, hosts: Sequence[str]) -> None:
        self._requests, self._answers = requests, answers
        self._ask("open", url, list(hosts))

    def files(self) -> list[SourceFile]:
        """Return the files that are there now, in order."""
        self._ask("files")
        try:
            files = [SourceFile(str(path), size, str(tag)) for path, size, tag in json.loads(self._frame(FILES))]
            if not all(each.size_bytes is None or type(each.size_bytes) is int for each in files):
                raise TypeError("a size is no number")
        except (ValueError, TypeError, RecursionError) as problem:
            raise PreparationFailed(f"its reader sent no list of files: {problem}") from problem
        _check_files(files)
        return files

    def read(self, file: SourceFile) -> Iterator[bytes]:
        """Yield the content of a file."""
        self._ask("read", list(file))
        while chunk := self._frame(CONTENT):
            yield chunk

    def _ask(self, *words: object) -> None:
        try:
            os.write(self._requests, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            self._frame(FILES)  # why it has ended

    def _frame(self, wanted: bytes) -> bytes:
        header = self._answers.read(HEADER.size)
        kind, size = HEADER.unpack(header) if len(header) == HEADER.size else (b"", 0)
        if kind not in (wanted, PROBLEM) or size > FRAME_BYTES_MAX:
            output = (header + self._answers.read(PROBLEM_CHARACTERS)).decode("utf-8", "replace").strip()
            raise PreparationFailed(f"its reader ended: {output or 'it was killed'}")
        content = self._answers.read(size)
        if len(content) < size:
            raise PreparationFailed("its reader ended: it was killed")
        if kind == PROBLEM:
            raise PreparationFailed(shortened(content.decode("utf-8", "replace"), PROBLEM_CHARACTERS))
        return content


def _check_files(files: Sequence[SourceFile]) -> None:
    if len(files) > FILES_MAX:
        raise PreparationFailed(f"it has {len(files)} files, and at most {FILES_MAX} are taken; pack them")
    for path in (each.path for each in files if each.path):
        if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise PreparationFailed(f"its file {path!r} does not lead below it")
