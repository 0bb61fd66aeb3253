"""A code version: the files of a working directory as they were, each named by the SHA-256 of its content.

A file is stored as chunks of CHUNK_BYTES, so that a change sends and stores only the chunks that it touches. Service,
client and supervisor read this module: standard library only.
"""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

CHUNK_BYTES = 256 << 10
FILES_MAX = 50_000
BODY_BYTES = 16 << 20  # of one request: a tree of the most files fits
FOLDERS_NAMED = 3
DIFF_FILE = "changes.diff"  # the one file of the version in which a diff is stored
DIFF_BYTES = 1_000_000  # of a diff; what is longer is cut after a whole line
CUT_LINE = b"[the diff goes on: only its first 1,000,000 bytes are kept]\n"
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """One file. `chunks` are digests, in order; `target` is what a symbolic link leads to, "" of a plain file."""

    path: str
    size_bytes: int = 0
    chunks: tuple[str, ...] = ()
    is_executable: bool = False
    target: str = ""


def chunk_sizes(files: Iterable[TreeFile]) -> dict[str, int]:
    """Return the size of each chunk in bytes, in order of their first use: only a file's last chunk is not full."""
    return {
        chunk: min(CHUNK_BYTES, each.size_bytes - index * CHUNK_BYTES)
        for each in files
        for index, chunk in enumerate(each.chunks)
    }


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def tree_text(files: Iterable[TreeFile]) -> bytes:
    """Return the tree as JSON in one form only: equal files have equal texts. Its digest names the code version."""
    listed = [asdict(each) for each in sorted(files, key=lambda each: each.path)]
    return json.dumps(listed, sort_keys=True, separators=(",", ":")).encode()


def read_tree(text: bytes) -> tuple[TreeFile, ...]:
    """Return the files of a text that `tree_text` made."""
    return tuple(TreeFile(**{**each, "chunks": tuple(each["chunks"])}) for each in json.loads(text))


def problem_of(files: Sequence[TreeFile]) -> str:
    """Return what keeps these files from being written below one folder; "" if nothing does."""
    paths = {each.path for each in files}
    if len(paths) < len(files):
        return "a path occurs twice"
    for each in files:
        parts = each.path.split("/")
        if each.path.startswith("/") or "\0" in each.path + each.target or not {"", ".", ".."}.isdisjoint(parts):
            return f"{each.path!r} does not lead below the folder"
        if any("/".join(parts[:depth]) in paths for depth in range(1, len(parts))):
            return f"{each.path!r} lies below what is no folder"
        if len(each.chunks) != -(-each.size_bytes // CHUNK_BYTES) or (each.target and each.chunks):
            return f"{each.path!r} has {each.size_bytes} bytes but {len(each.chunks)} chunks of {CHUNK_BYTES}"
    return ""


def too_large(sizes: Mapping[str, int], limit_bytes: int) -> str:
    """Return why files of these sizes (bytes, by path) are too many or too large, and where; "" if they are not."""
    total = sum(sizes.values())
    if len(sizes) <= FILES_MAX and total <= limit_bytes:
        return ""
    by_count = len(sizes) > FILES_MAX
    folders: Counter[str] = Counter()
    for path, size in sizes.items():
        folders[path.partition("/")[0] + ("/" if "/" in path else "")] += 1 if by_count else size
    largest = folders.most_common(FOLDERS_NAMED)
    if by_count:
        named = ", ".join(f"{name} ({count})" for name, count in largest)
        return f"{len(sizes)} files are more than {FILES_MAX}; most are in {named}"
    named = ", ".join(f"{name} ({megabytes(size)})" for name, size in largest)
    return f"{megabytes(total)} are more than the {megabytes(limit_bytes)} that the service takes; largest are {named}"


def bounded_diff(text: bytes) -> bytes:
    """Return a diff, of a long one its first whole lines, at most DIFF_BYTES, and CUT_LINE.

    No line is cut, so no part of a secret is left at the end, where nobody could recognize it.
    """
    return text if len(text) <= DIFF_BYTES else text[: text.rfind(b"\n", 0, DIFF_BYTES) + 1] + CUT_LINE


def megabytes(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / 1e6:,.1f} MB"


def packed(chunks: Iterable[bytes]) -> bytes:
    """Return the chunks as one body: each after its length, four bytes, most significant first."""
    return b"".join(_LENGTH.pack(len(each)) + each for each in chunks)


def unpacked(body: bytes) -> Iterator[bytes]:
    """Yield the chunks of a body. Raises ValueError if it is cut short, or a chunk is larger than CHUNK_BYTES."""
    at = 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise ValueError("the body ends within the length of a chunk")
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if size > CHUNK_BYTES or at + size > len(body):
            raise ValueError(f"a chunk of {size} bytes is larger than {CHUNK_BYTES} or cut short")
        yield body[at : at + size]
        at += size
