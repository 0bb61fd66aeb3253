"""Messages that keep the ranks of a gang in step: rank 0 is the hub, the others are spokes.

In each step rank 0 sends every spoke an order (go, save, stop or end), and after the step, or the checkpoint, every
spoke reports to rank 0 that it is done. In between, `all_gather` passes bytes through the hub. Every message has a tag,
which shows ranks that do different things at the same time. Every wait ends after the gang's time limit, which the
kernel keeps (SO_RCVTIMEO) at no cost per message. A peer that ends closes its socket, which is noticed at once.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gavel_runtime._admission import Admissions

HUB_FILE = "hub.json"
GO, SAVE, STOP, END = b"go", b"save", b"stop", b"end"
_HELLO, _ORDER, _DONE, _GATHER = b"h", b"o", b"d", b"g"
_MEANING = {_HELLO: "joined", _ORDER: "sent an order", _DONE: "ended its step", _GATHER: "called all_gather"}
_HEADER = struct.Struct("!cQ")
_COPIED_BYTES_MAX = 1 << 16
_POLL_S = 0.01
_STRANGER_LIMIT_S = 5.0


class GangError(RuntimeError):
    """The ranks of a gang lost each other or fell out of step; the rank that raises it should exit."""


class Link:
    """One connection between the hub and a spoke. A message is a tag, the payload's length, and the payload."""

    def __init__(self, connected: socket.socket, peer: str, timeout_s: float) -> None:
        self._socket = connected
        self.peer = peer
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.limit(timeout_s)

    def limit(self, timeout_s: float) -> None:
        """Limit each further wait on this link, in seconds."""
        self._timeout_s = timeout_s
        seconds, microseconds = divmod(max(1, round(timeout_s * 1e6)), 1_000_000)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, microseconds))

    def authenticate(self, key: bytes, *, is_hub: bool) -> None:
        """Let both sides prove that they have the key. Raises AuthenticationError, EOFError, OSError."""
        from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

        proofs = (deliver_challenge, answer_challenge) if is_hub else (answer_challenge, deliver_challenge)
        connection: Connection[bytes, bytes] = Connection(os.dup(self._socket.fileno()))
        with connection:
            for proof in proofs:
                proof(connection, key)

    def send(self, tag: bytes, payload: bytes = b"") -> None:
        """Send a message. Raises GangError if the peer is gone or does not read."""
        header = _HEADER.pack(tag, len(payload))
        try:
            if len(payload) < _COPIED_BYTES_MAX:
                self._socket.sendall(header + payload)
            else:
                self._socket.sendall(header)
                self._socket.sendall(payload)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, tag: bytes) -> bytes:
        """Return the payload of the next message; raises GangError if the peer is gone, silent, or sent another tag."""
        try:
            sent_tag, size = _HEADER.unpack(self._read(_HEADER.size))
            payload = self._read(size)
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        if sent_tag != tag:
            raise GangError(
                f"{self.peer} {_MEANING.get(sent_tag, 'sent nonsense')} where this rank expected it to have "
                f"{_MEANING[tag]}: every rank must call all_gather equally often in each step"
            )
        return payload

    def _read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            part = self._socket.recv(size, socket.MSG_WAITALL)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _lost(self, error: Exception) -> GangError:
        if isinstance(error, BlockingIOError):
            return GangError(f"{self.peer} did not answer for {self._timeout_s:g} s (GAVEL_GANG_TIMEOUT_S)")
        return GangError(f"{self.peer} left the gang ({type(error).__name__})")


class Hub:
    """Rank 0's side; with no links it is a gang of one."""

    def __init__(self, links: Sequence[Link] = ()) -> None:
        self._links = links

    def release(self, order: bytes, step: int, name: str = "") -> None:
        """Send every spoke the order: GO with the step and what `Batches.order` says, SAVE with the folder's name."""
        for link in self._links:
            link.send(_ORDER, b"%s %d %s" % (order, step, name.encode()))

    def step_done(self) -> tuple[bool, float]:
        """Wait until every spoke has ended its step.

        Return whether one of them was asked to stop, and the most seconds of it that one was not training.
        """
        answers = [link.receive(_DONE).partition(b" ") for link in self._links]
        stops = any(order == STOP for order, _, _ in answers)
        return stops, max((float(outside_s or 0.0) for _, _, outside_s in answers), default=0.0)

    def all_gather(self, payload: bytes) -> tuple[bytes, ...]:
        """Every rank's payload, in the order of ranks."""
        payloads = (payload, *(link.receive(_GATHER) for link in self._links))
        for own, link in enumerate(self._links, start=1):
            for rank, each in enumerate(payloads):
                if rank != own:
                    link.send(_GATHER, each)
        return payloads


class Spoke:
    """The side of every rank but 0."""

    def __init__(self, link: Link, rank: int, world_size: int) -> None:
        self._link = link
        self._rank = rank
        self._world_size = world_size

    def order(self, step: int | None) -> tuple[bytes, int, str]:
        """Return the order, GO, SAVE, STOP or END, the step of the hub, and the name of the folder to SAVE in, or what
        `Batches.order` says.

        Raises GangError if the hub is at another step than this rank; None: the hub says at which it is.
        """
        order, at, name = self._link.receive(_ORDER).split(b" ", 2)
        if order in (GO, SAVE) and step is not None and int(at) != step:
            raise GangError(f"rank 0 released step {int(at)} while rank {self._rank} is at step {step}")
        return order, int(at), name.decode()

    def step_done(self, *, asked_to_stop: bool, outside_s: float = 0.0) -> None:
        """Tell the hub that this rank has ended its step, of which `outside_s` seconds were no training."""
        self._link.send(_DONE, b"%s %.6f" % (STOP if asked_to_stop else GO, outside_s))

    def all_gather(self, payload: bytes) -> tuple[bytes, ...]:
        """Every rank's payload, in the order of ranks."""
        self._link.send(_GATHER, payload)
        ranks = range(self._world_size)
        return tuple(payload if rank == self._rank else self._link.receive(_GATHER) for rank in ranks)


@dataclass(frozen=True, slots=True)
class Meeting:
    """The address at which the ranks of a gang meet, the key, and for how many seconds they wait for each other.

    If `address` is None, rank 0 chooses a port and writes it into `directory`, which all ranks can read.
    """

    directory: Path
    address: tuple[str, int] | None
    key: bytes
    timeout_s: float


def open_hub(meeting: Meeting, world_size: int) -> Hub:
    """Wait until every other rank has joined, and return the hub. Raises GangError if one does not join in time."""
    deadline_s = time.monotonic() + meeting.timeout_s
    links: dict[int, Link] = {}
    with socket.create_server(meeting.address or ("127.0.0.1", 0)) as server:
        if meeting.address is None:
            _publish(meeting.directory / HUB_FILE, server.getsockname())
        admissions = Admissions(server, lambda connected: _admitted(connected, meeting))
        try:
            while len(links) < world_size - 1:
                admitted = admissions.next(deadline_s - time.monotonic())
                if admitted is None:
                    joined = f"{len(links) + 1} of {world_size} ranks joined within {meeting.timeout_s:g} s"
                    raise GangError(joined)
                rank, link = admitted
                if rank in links or not 0 < rank < world_size:
                    raise GangError(f"rank {rank} of {world_size} joined twice or does not exist")
                links[rank] = link
        finally:
            admissions.close()
    return Hub([links[rank] for rank in sorted(links)])


def _admitted(connected: socket.socket, meeting: Meeting) -> tuple[int, Link] | None:
    """Return the rank that connected, and its link; None, with the connection closed, if it lacks the key."""
    from multiprocessing import AuthenticationError

    link = Link(connected, "a rank that has not said its number", min(meeting.timeout_s, _STRANGER_LIMIT_S))
    try:
        link.authenticate(meeting.key, is_hub=True)
        rank = int.from_bytes(link.receive(_HELLO), "big")
        link.peer = f"rank {rank}"
        link.limit(meeting.timeout_s)
    except (AuthenticationError, EOFError, OSError, GangError):
        link.close()
        return None
    return rank, link


def join_hub(meeting: Meeting, rank: int, world_size: int) -> Spoke:
    """Return this rank's connection to rank 0. Raises GangError if rank 0 is not there in time or has another key."""
    from multiprocessing import AuthenticationError

    deadline_s = time.monotonic() + meeting.timeout_s
    address = meeting.address or _published(meeting.directory / HUB_FILE, meeting.timeout_s)
    try:
        link = Link(_connected(address, deadline_s), "rank 0", meeting.timeout_s)
        link.authenticate(meeting.key, is_hub=False)
    except (AuthenticationError, EOFError, OSError) as error:
        raise GangError(f"rank 0 at {address[0]}:{address[1]} did not let rank {rank} in: {error}") from error
    link.send(_HELLO, rank.to_bytes(4, "big"))
    return Spoke(link, rank, world_size)


def _connected(address: tuple[str, int], deadline_s: float) -> socket.socket:
    """Connect as soon as rank 0 listens, at the latest at the deadline. Raises OSError."""
    while True:
        try:
            return socket.create_connection(address, timeout=max(1e-3, deadline_s - time.monotonic()))
        except ConnectionRefusedError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_POLL_S)


def _publish(path: Path, address: tuple[str, int]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps({"host": address[0], "port": address[1]}), encoding="utf-8")
    temporary.rename(path)


def _published(path: Path, timeout_s: float) -> tuple[str, int]:
    deadline_s = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() >= deadline_s:
            raise GangError(f"rank 0 did not write {path.name} within {timeout_s:g} s")
        time.sleep(_POLL_S)
    fields = json.loads(path.read_text(encoding="utf-8"))
    return str(fields["host"]), int(fields["port"])
