"""An agent's side of the connection to a service whose folder its node does not see: one WebSocket, made by the agent.

It is made again whenever it breaks, and then the newest letter comes and the newest reply goes: nothing that was on its
way is missed. While it is broken the gang runs on to the end of its lease.
"""

import asyncio
import os
import pickle
import random
import ssl
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gavel.backends.nodes.letters import LETTER_BYTES, Box, FilePack, Letter, Reply, parsed
from gavel.backends.nodes.protocol import CodeGiven
from gavel.backends.nodes.relay import CERTIFICATES_VARIABLE, EPOCH_BYTES, KEY_VARIABLE, ORDERS_PATH, parts_of
from gavel.backends.nodes.tunnels import TunnelWanted, tunnels_of

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

GONE = 410
PING_EVERY_S = 5.0
SILENT_S = 10.0  # seconds without an answer to a ping, after which the connection counts as broken
OPEN_LIMIT_S = 10.0
LASTING: dict[str, Any] = {
    "compression": None,
    "proxy": None,
    "ping_interval": PING_EVERY_S,
    "ping_timeout": SILENT_S,
    "close_timeout": 1.0,
}
"""The options of every connection of an agent to the service: it is noticed within seconds that one has broken."""
PAUSES_S = (0.1, 3.0)  # before the connection is made again: the first, and the longest


def connected_box(url: str) -> Box:
    """Return the box of an agent at an address of the service's API.

    The key is taken out of the environment, which programs of the job inherit.
    """
    access = Access(
        url=url,
        key=os.environ.pop(KEY_VARIABLE, ""),
        certificates=os.environ.pop(CERTIFICATES_VARIABLE, ""),
    )
    return ConnectedBox(access)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the service answers an agent, the agent's key, and certificates that the service is checked by.

    `certificates`: in PEM form; "": those of this system.
    """

    url: str
    key: str
    certificates: str = ""

    @property
    def service(self) -> str:
        """Return the address of the service itself."""
        return self.url.partition(ORDERS_PATH)[0]

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that say who asks."""
        return {"Authorization": f"Bearer {self.key}"}

    def context(self) -> ssl.SSLContext | None:
        """Return how the service is checked; None where it is not asked by https."""
        if not self.url.startswith("https"):
            return None
        return ssl.create_default_context(cadata=self.certificates or None)


@dataclass(frozen=True, slots=True)
class FetchedPack:
    """A pack of code that the service's API gives."""

    access: Access
    name: str

    def read(self, limit_s: float) -> bytes:
        """Return the pack. Raises httpx.HTTPError."""
        import httpx

        url = f"{self.access.url}/packs/{self.name}"
        checked = self.access.context() or True
        answer = httpx.get(url, headers=self.access.headers, timeout=limit_s, verify=checked, trust_env=False)
        return answer.raise_for_status().content


class Newest:
    """What has come from the service: the newest letter and epoch, in whichever order messages come, and tunnels."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.letter: Letter | None = None
        self.epoch = 0
        self.tunnels: tuple[TunnelWanted, ...] = ()

    def take_tunnels(self, message: str) -> None:
        """Take the tunnels that are wanted now. They go where the letters come from, whatever else has been named."""
        here = self._access
        wanted = tunnels_of(message.encode())
        self.tunnels = tuple(replace(each, url=here.service, certificates=here.certificates) for each in wanted)

    def take(self, message: bytes) -> None:
        """Take a message. An older letter than the one that is here, and what is no letter, change nothing."""
        self.epoch = max(self.epoch, int.from_bytes(message[:EPOCH_BYTES], "big"))
        letter = parsed(message[EPOCH_BYTES:])
        if isinstance(letter, Letter) and (self.letter is None or letter.number > self.letter.number):
            given = tuple(self._fetched(each) for each in letter.order.code)
            self.letter = replace(letter, order=replace(letter.order, code=given))

    def _fetched(self, given: CodeGiven) -> CodeGiven:
        if not isinstance(given.pack, FilePack):
            return given
        return replace(given, pack=FetchedPack(self._access, Path(given.pack.path).name))


class ConnectedBox:
    """An agent's side of a connection, kept by a thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._newest = Newest(access)
        self._is_gone = self._is_closed = False
        self._reply = b""
        self._loop = asyncio.new_event_loop()
        self._has_reply = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="gavel-connection", daemon=True)
        self._thread.start()

    def letter(self) -> Letter | None:
        """Return the newest letter; None if none has come."""
        return None if self._is_gone else self._newest.letter

    def epoch(self) -> int:
        """Return the newest epoch of a service that commands; 0 if none is known."""
        return self._newest.epoch

    def tunnels(self) -> tuple[TunnelWanted, ...]:
        """Return the tunnels that the service wants now."""
        return self._newest.tunnels

    def answer(self, reply: Reply) -> None:
        """Let the service have this reply in place of any earlier one, as soon as it can be reached."""
        self._reply = pickle.dumps(reply)
        self._wake()

    def is_gone(self) -> bool:
        """Return True once the service has forgotten the allocation: no letter will come."""
        return self._is_gone

    def close(self) -> None:
        """Give the last reply a moment to go, then end the connection. Closing twice does no harm."""
        self._is_closed = True
        self._wake()
        self._thread.join(timeout=1.0)

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._has_reply.set)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        """Keep a connection until the service has forgotten the allocation, or the box is closed."""
        pause_s, longest_s = PAUSES_S
        while not (self._is_gone or self._is_closed):
            if await self._connected():
                pause_s = PAUSES_S[0]
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  agents come back one by one
            pause_s = min(pause_s * 2, longest_s)

    async def _connected(self) -> bool:
        """Make a connection and serve it until it breaks; return whether it was made."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        is_made = False
        try:
            async with connect(
                self._access.url.replace("http", "ws", 1),
                additional_headers=self._access.headers,
                ssl=self._access.context(),
                max_size=LETTER_BYTES,
                open_timeout=OPEN_LIMIT_S,
                **LASTING,
            ) as there:
                is_made = True
                await first_of(self._read(there), self._write(there))
        except InvalidStatus as refused:
            self._is_gone = refused.response.status_code == GONE
        except (WebSocketException, OSError, TimeoutError):
            pass  # it is made again
        return is_made

    async def _read(self, there: "ClientConnection") -> None:
        async for message in there:
            if isinstance(message, bytes):
                self._newest.take(message)
            else:
                self._newest.take_tunnels(message)

    async def _write(self, there: "ClientConnection") -> None:
        """Send the newest reply, and again whenever there is a newer one."""
        sent = b""
        while True:
            self._has_reply.clear()
            if self._reply != sent:
                sent = self._reply
                for part in parts_of(sent):
                    await there.send(part)
            if self._is_closed:
                return
            await self._has_reply.wait()


async def first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until one ends, then cancel the others. Raises what that one raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
