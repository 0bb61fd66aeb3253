"""How the service and an agent speak: each writes files that only the other reads, an order and a reply.

A file is replaced as a whole, so that a reader sees the old text or the new one. Orders are numbered and level
triggered: an answer names the order that it is about, and what was overwritten before it was read is not missed. The
files are made by the service before any node looks for them, since a file system of a network may remember for long
that a file was not there. Where nodes do not see the service's folder, its API carries the files (`relay`,
`connection`).
"""

import io
import os
import pickle
import time
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from gavel.backends.durable import write_durable
from gavel.backends.machine import read_plain
from gavel.backends.nodes.protocol import Answer, Order
from gavel.backends.nodes.tunnels import FILE, TunnelFile, TunnelWanted

LETTER_BYTES = 1 << 28
RECORDS = ("gavel.backends.", "gavel.ports", "gavel.types")
PLAIN = {("pathlib", "PosixPath"), ("builtins", "set"), ("builtins", "frozenset")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What the service wants of an agent. `leaves`: it is to end everything and free its node.

    Of two letters the one with the larger `number` is newer, whichever service wrote it.
    """

    number: int
    order: Order
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent says of the letter with this number.

    `beat` grows while it lives; `problem`: why it cannot work; `node`: where it is.
    """

    number: int
    beat: int
    answer: Answer | None = None
    problem: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class FilePack:
    """A pack of code in a file that service and nodes see."""

    path: str

    def read(self, limit_s: float) -> bytes:
        """Return the pack. Raises OSError."""
        return Path(self.path).read_bytes()


class Box(Protocol):
    """An agent's side of what it and the service write to each other."""

    def letter(self) -> Letter | None:
        """Return the newest letter; None if none has come."""

    def epoch(self) -> int:
        """Return the newest epoch of a service that commands; 0 if none is known."""

    def tunnels(self) -> tuple[TunnelWanted, ...]:
        """Return the tunnels that the service wants now."""

    def answer(self, reply: Reply) -> None:
        """Let the service have this reply in place of any earlier one. Raises OSError."""

    def is_gone(self) -> bool:
        """Return True once the service has forgotten the allocation: no letter will come."""

    def close(self) -> None:
        """End what was begun to speak. Closing twice does no harm."""


class PostBox:
    """The files of one agent, in a folder of its own: both sides of them."""

    def __init__(self, folder: Path) -> None:
        self._order, self._reply = folder / "order", folder / "reply"
        self._read: tuple[bytes, object] = (b"", None)
        self._tunnels = TunnelFile(folder)
        self.folder = folder

    def make(self, letter: Letter) -> None:
        """Make the folder with its first letter, an empty reply and no tunnels. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(self._reply, b"")
        put(self.folder / FILE, b"")
        self.send(letter)

    def send(self, letter: Letter) -> None:
        """Write a letter for the agent. Raises OSError."""
        put(self._order, pickle.dumps(letter))

    def answer(self, reply: Reply) -> None:
        """Write a reply for the service. Raises OSError."""
        put(self._reply, pickle.dumps(reply))

    def letter(self) -> Letter | None:
        """Return the newest letter; None if there is none."""
        read = self._newest(self._order)
        return read if isinstance(read, Letter) else None

    def reply(self) -> Reply | None:
        """Return the newest reply; None if there is none."""
        read = self._newest(self._reply)
        return read if isinstance(read, Reply) else None

    def tunnels(self) -> tuple[TunnelWanted, ...]:
        """Return the tunnels that the service wants now."""
        return self._tunnels.wanted()

    def epoch(self) -> int:
        """Return the newest epoch of a service that commands; 0 if none is known."""
        return read_epoch(self.folder.parents[2])

    def is_gone(self) -> bool:
        """Return True once the service has forgotten the allocation: no letter will come."""
        return not self.folder.is_dir()

    def close(self) -> None:
        """Do nothing: files are not held open."""

    def _newest(self, path: Path) -> object:
        """Return the record in the file; None if there is none. What has not changed is not parsed again."""
        try:
            content = read_plain(str(path), limit_bytes=LETTER_BYTES)
        except OSError:
            return None
        if content != self._read[0]:
            self._read = (content, parsed(content))
        return self._read[1]


def write_epoch(folder: Path, epoch: int) -> None:
    """Tell every agent that only services of this epoch, and later ones, command. Raises OSError."""
    write_durable(folder / "epoch", str(max(epoch, read_epoch(folder))).encode())


def read_epoch(folder: Path) -> int:
    """Return the newest epoch of a service that has used the folder; 0 if there was none."""
    try:
        text = read_plain(str(folder / "epoch"), limit_bytes=64)
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def put(path: Path, content: bytes) -> None:
    """Replace a file as a whole. It need not outlast a loss of power: it is written again. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    temporary.rename(path)


def parsed(content: bytes) -> object:
    """Return the record that was written; None for anything that none of us has written."""
    try:
        return _Records(io.BytesIO(content)).load() if content else None
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError, ValueError):
        return None  # nothing that one of us has written


class _Records(pickle.Unpickler):
    """Reads records of ours and plain values; nothing else is looked up, whoever has written the file."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a record type or an enumeration of ours. Raises UnpicklingError."""
        if (module, name) in PLAIN:
            return super().find_class(module, name)
        match = super().find_class(module, name) if module.startswith(RECORDS) else None
        if isinstance(match, type) and (is_dataclass(match) or issubclass(match, Enum)):
            return match
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a letter")
