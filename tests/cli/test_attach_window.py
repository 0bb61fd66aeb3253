"""The size of a window and what is typed in it, in the order in which they came, at a real terminal."""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from typing import Any

import pytest

from gavel.cli.attach import End, Window, _type
from gavel_runtime.terminal_frames import TYPED, frame, size_frame


class _There:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(message)


def test_what_is_typed_in_a_new_window_comes_after_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal of the new size may come later than the keys: nobody waits for it."""
    ours, theirs = pty.openpty()
    termios.tcsetattr(theirs, termios.TCSANOW, _without_lines(theirs))
    there: Any = _There()
    with os.fdopen(theirs, "r+b", buffering=0) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("sys.stdout", terminal)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
        os.write(ours, b"stty size\r\x1d")
        end = asyncio.run(asyncio.wait_for(_type(there, Window(there), End(0)), timeout=20.0))
    os.close(ours)
    assert end == End(0)
    assert there.sent == [size_frame(50, 132), frame(TYPED, b"stty size\r")]


def _without_lines(terminal: int) -> list[Any]:
    attributes = termios.tcgetattr(terminal)
    attributes[0] &= ~termios.ICRNL
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    return attributes
