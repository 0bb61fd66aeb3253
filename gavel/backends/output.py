"""What a job's processes print, kept within a bound. Standard library only: a part of the supervisor."""

import contextlib
import json
import os
import re
from collections.abc import Iterable

from gavel.backends.machine import read_from, write_json

TAIL_LINES, TAIL_BYTES = 20, 4096
MASK = b"***"
OFFSET_MAX = 1 << 62  # of a log, in bytes since its first line
CUT = "…"  # at the end of a text whose end was left out, by the runtime of a job, too
MASKED_LETTERS_MIN = 8  # as many as a secret has at least, so of a secret of several lines only those that are long


class Mask:
    """Puts `***` for secrets in output, also where one comes in parts or over several lines."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        texts = {text for each in secrets for text in (each, *each.splitlines()) if len(text) >= MASKED_LETTERS_MIN}
        self._hidden = sorted((text.encode("utf-8", "replace") for text in texts), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._hidden)))
        self._kept = b""

    def cover(self, output: bytes, *, is_last: bool = False) -> bytes:
        """Return what is known to be no part of a secret, or masked; keep the rest until more comes."""
        if not self._hidden:
            return output
        text = self._kept + output
        end = len(text) if is_last else self._begun_at(text)
        covered, position = [], 0
        for match in self._pattern.finditer(text):
            if match.start() >= end:
                break
            covered += [text[position : match.start()], MASK]
            position = match.end()
        end = max(end, position)
        self._kept = text[end:]
        return b"".join([*covered, text[position:end]])

    def text(self, text: str) -> str:
        """Return a text with `***` for each secret; before a final `…`, where it was cut, no part of one either."""
        if not self._hidden:
            return text
        whole = text.removesuffix(CUT)
        content = whole.encode("utf-8", "replace")
        end = len(content) if whole == text else self._begun_at(content)
        return self._pattern.sub(MASK, content[:end]).decode() + text[len(whole) :]

    def beginning(self, text: str, characters: int) -> str:
        """Return at most so many characters of a text, which is masked before it is cut."""
        return shortened(self.text(text), characters)

    def _begun_at(self, text: bytes) -> int:
        """Return where the end of the text may be the beginning of a secret; its length if it is none."""
        return min(self._begun(text, secret) for secret in self._hidden)

    def _begun(self, text: bytes, secret: bytes) -> int:
        start = max(0, len(text) - len(secret) + 1)
        while (start := text.find(secret[:1], start)) >= 0:
            if secret.startswith(text[start:]):
                return start
            start += 1
        return len(text)


def shortened(text: str, characters: int) -> str:
    """Return a text; of a longer one its beginning and `…`. What may have secrets is masked first (`Mask`)."""
    return text if len(text) <= characters else text[: characters - 1] + CUT


class Log:
    """The output of a job, bounded: at half the limit the log is renamed to `.1`, replacing the `.1` before it.

    `.base` names the file (by inode) that ends at a known offset since the job's first line; see `gavel.backends.logs`.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._half_bytes = max(1, limit_bytes // 2)
        self._tail = b""
        self._base = self._recover()
        self._open()

    def write(self, output: bytes) -> None:
        """Append; a disk that is full loses output, not the job."""
        self._tail = (self._tail + output)[-TAIL_BYTES:]
        rest = memoryview(output)
        try:
            while rest:
                if self._size >= self._half_bytes:
                    self._rotate()
                written = os.write(self._file, rest[: self._half_bytes - self._size])
                self._size += written
                rest = rest[written:]
        except OSError as problem:
            self._tail = f"[output was lost: {problem}]".encode()

    def tail(self) -> str:
        """Return the last lines of this gang's output."""
        return "\n".join(self._tail.decode("utf-8", "replace").splitlines()[-TAIL_LINES:])

    def close(self) -> None:
        """Close the file; nothing may be written afterwards."""
        os.close(self._file)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self._base += self._size
        write_json(self._path + ".base", {"inode": os.fstat(self._file).st_ino, "end": self._base})
        with contextlib.suppress(FileNotFoundError):  # some file systems would write it to disk if it were renamed over
            os.unlink(self._path + ".1")
        os.rename(self._path, self._path + ".1")
        full = self._file
        self._open()
        os.close(full)

    def _recover(self) -> int:
        """Return the offset at which the current file begins, after finishing a rotation that was interrupted."""
        rotation = rotation_of(self._path)
        if rotation is None:
            return 0
        inode, end = rotation
        if os.path.exists(self._path) and os.stat(self._path).st_ino == inode:
            os.replace(self._path, self._path + ".1")
        return end


def rotation_of(path: str) -> tuple[int, int] | None:
    """Return the inode and the end offset that the `.base` file of a log names; None without a proper one.

    A job may write it, too.
    """
    try:
        rotation = json.loads(read_from(path + ".base", 0))
        inode, end = rotation["inode"], rotation["end"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (inode, end) if type(inode) is type(end) is int and 0 <= end <= OFFSET_MAX else None
