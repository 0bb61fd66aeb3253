"""Messages between a terminal of a job and who is attached to it: a tag, the payload's length, and the payload."""

import struct
from collections.abc import Iterator

KEY = b"a"  # first of all: the gang's key
TYPED, SIZE = b"k", b"s"  # what was typed; rows and columns
OUTPUT, EXIT = b"o", b"x"  # of the shell: what it printed; its exit status
PAYLOAD_BYTES = 1 << 16
EXIT_STATUS_MAX = 255

_HEADER = struct.Struct("!cI")
_SIZE = struct.Struct("!HH")


def frame(tag: bytes, payload: bytes) -> bytes:
    """Return a message. The payload has at most PAYLOAD_BYTES."""
    return _HEADER.pack(tag, len(payload)) + payload


def size_frame(rows: int, columns: int) -> bytes:
    """Return the message that says how large the window is."""
    return frame(SIZE, _SIZE.pack(rows, columns))


def size_of(payload: bytes) -> tuple[int, int]:
    """Return rows and columns. Raises ValueError."""
    if len(payload) != _SIZE.size:
        raise ValueError("a size is two numbers of 16 bits")
    rows, columns = _SIZE.unpack(payload)
    return rows, columns


class Frames:
    """Makes whole messages of bytes that come in pieces."""

    def __init__(self) -> None:
        self._left = b""

    def of(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield tag and payload of each message that is whole with this chunk. Raises ValueError for one too long."""
        self._left += chunk
        while len(self._left) >= _HEADER.size:
            tag, length = _HEADER.unpack_from(self._left)
            if length > PAYLOAD_BYTES:
                raise ValueError(f"a message has at most {PAYLOAD_BYTES} bytes, not {length}")
            end = _HEADER.size + length
            if len(self._left) < end:
                return
            payload, self._left = self._left[_HEADER.size : end], self._left[end:]
            yield tag, payload
