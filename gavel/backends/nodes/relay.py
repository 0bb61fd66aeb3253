"""The service's side of agents that do not see its folder: its API reads and writes their files for them.

An agent proves who it is by the key of its allocation, which only the agents of one gang have; the service keeps the
key's digest. So whoever reads a key can pose as the agents of that gang, and as nothing else.

What goes to an agent is the newest epoch, in eight bytes, and the newest letter; and, as a text, which tunnels are
wanted of it. What comes from it is a reply in
parts, since one WebSocket message may not be large: each part begins with a byte that is 1 for the last one.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gavel.backends.durable import write_durable
from gavel.backends.machine import read_plain
from gavel.backends.nodes.letters import LETTER_BYTES, put, read_epoch
from gavel.backends.nodes.tunnels import FILE, read_tunnels

ORDERS_PATH = "/v1/orders"
KEY = "key"
KEY_VARIABLE = "GAVEL_AGENT_KEY"
CERTIFICATES_VARIABLE = "GAVEL_AGENT_CA"
EPOCH_BYTES = 8
REPLY_BYTES = 8 << 20
PART_BYTES = 256 << 10
MORE, LAST = b"\0", b"\1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,299}")
Version = tuple[tuple[int, int, int], ...]


def made_key(folder: Path) -> str:
    """Return a new key for the agents of the allocation with this folder. Raises OSError."""
    key = secrets.token_urlsafe(32)
    write_durable(folder / KEY, _digest(key))
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStart:
    """What the agents of an allocation are told at their start: `where` their boxes are, a folder or an address."""

    where: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def allocation(self) -> str:
        """Return the name of the allocation."""
        return self.where.rpartition("/")[2]


def agent_start(folder: Path, orders_url: str, certificates: str) -> AgentStart:
    """Return what the agents of the allocation with this folder are told, with a new key if they are to connect.

    `orders_url`: the address at which they do; "": they see the folder. Raises OSError.
    """
    if not orders_url:
        return AgentStart(where=str(folder))
    given = {KEY_VARIABLE: made_key(folder), CERTIFICATES_VARIABLE: certificates}
    return AgentStart(
        where=f"{orders_url}/{folder.name}", environment={name: value for name, value in given.items() if value}
    )


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files of one agent below the folder of all orders."""

    orders: Path
    allocation: str
    node: str

    @property
    def _folder(self) -> Path:
        return self.orders / "allocations" / self.allocation

    def are_gone(self) -> bool:
        """Return True once the service has forgotten the allocation, and not where its folder cannot be read."""
        is_readable = self._are_named() and (self.orders / "allocations").is_dir()
        return is_readable and not self._folder.exists()

    def admits(self, key: str) -> bool:
        """Return True for the key of the allocation."""
        if not self._are_named():
            return False
        try:
            kept = read_plain(str(self._folder / KEY), limit_bytes=128)
        except OSError:
            return False
        return hmac.compare_digest(kept, _digest(key))

    def version(self) -> Version:
        """Return what differs whenever `message` or `tunnels` does."""
        return tuple(_stamp(path) for path in (self._order, self.orders / "epoch", self._folder / self.node / FILE))

    def message(self) -> bytes | None:
        """Return the newest letter, before it the newest epoch; None while there is no letter."""
        try:
            letter = read_plain(str(self._order), limit_bytes=LETTER_BYTES)
        except OSError:
            return None
        # The epoch is read last: it is never older than the letter's.
        return read_epoch(self.orders).to_bytes(EPOCH_BYTES, "big") + letter

    def tunnels(self) -> str:
        """Return the text that says which tunnels are wanted."""
        return read_tunnels(self._folder / self.node).decode(errors="replace")

    def take(self, reply: bytes) -> None:
        """Keep the agent's newest reply. Raises OSError."""
        put(self._folder / self.node / "reply", reply)

    def pack(self, name: str) -> Path:
        """Return the file of a pack of code."""
        return self.orders / "packs" / name

    def _are_named(self) -> bool:
        return bool(NAME.fullmatch(self.allocation) and NAME.fullmatch(self.node))

    @property
    def _order(self) -> Path:
        return self._folder / self.node / "order"


@dataclass(slots=True)
class Parts:
    """The parts of a reply that have come so far."""

    _parts: list[bytes] = field(default_factory=list)

    def take(self, part: bytes) -> bytes | None:
        """Return the whole reply once its last part has come. Raises ValueError if it is no part, or too large."""
        if part[:1] not in (MORE, LAST) or len(part) > PART_BYTES + 1:
            raise ValueError("no part of a reply")
        self._parts.append(part[1:])
        if sum(map(len, self._parts)) > REPLY_BYTES:
            raise ValueError("the reply is too large")
        if part[:1] == MORE:
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole


def parts_of(reply: bytes) -> list[bytes]:
    """Return the parts of a reply, each small enough for one message."""
    chunks = [reply[start : start + PART_BYTES] for start in range(0, len(reply), PART_BYTES)] or [b""]
    return [(LAST if index == len(chunks) - 1 else MORE) + chunk for index, chunk in enumerate(chunks)]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).hexdigest().encode()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)
