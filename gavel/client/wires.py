"""The two ways to perform a script (script.py): blocking for each step, or awaiting it. Nothing else differs."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from gavel.client.script import Ask, Item, Items, NextChunk, Open, Pause, Script, Step

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")


class Running(Generic[T]):
    """A script in progress: the step to perform next, or None and, in `value`, what the script returned."""

    def __init__(self, script: "Script[T] | Items[T]") -> None:
        self._script = script
        self.step: Step | Item[T] | None = None
        self.value: Any = None
        self.answer(None)

    def answer(self, answer: Any) -> None:
        """Pass the result of the step to the script."""
        try:
            self.step = self._script.throw(answer) if isinstance(answer, Exception) else self._script.send(answer)
        except StopIteration as end:
            self.step, self.value = None, end.value

    def close(self) -> None:
        """Close the script where it is."""
        self._script.close()


class Wire:
    """What both wires share: the service's address, and the caller's token."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {token}"},
            "timeout": timeout_s,
            "trust_env": False,
            "verify": _trusted(self.url),
        }

    def _request(self, ask: Ask) -> dict[str, Any]:
        """Return the arguments of httpx's `build_request`."""
        import httpx

        timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + ask.patience_s)
        options = {"params": ask.params, "headers": ask.headers, "json": ask.json, "content": ask.content}
        return {"method": ask.method, "url": ask.path, "timeout": timeout, **options}


def _trusted(url: str) -> "ssl.SSLContext | bool":
    """Return the certificates to check the service by: those of SSL_CERT_FILE, else the usual ones."""
    named = os.environ.get("SSL_CERT_FILE") if url.startswith("https://") else None
    if named is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=named)


class SyncWire(Wire):
    """Performs scripts in the calling thread."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        import httpx  # not before it is needed: a command that asks nothing begins sooner

        super().__init__(url, token, timeout_s)
        self._http = httpx.Client(**self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def perform(self, script: Script[T]) -> T:
        """Return what the script returns."""
        running = Running(script)
        for _ in self._played(running):
            pass
        value: T = running.value
        return value

    def iterate(self, items: Items[T]) -> Iterator[T]:
        """Yield what the script yields."""
        return self._played(Running(items))

    def _played(self, running: Running[T]) -> Iterator[T]:
        hand = _SyncHand(self)
        try:
            while (step := running.step) is not None:
                if isinstance(step, Item):
                    yield step.value
                    running.answer(None)
                else:
                    running.answer(hand.outcome(step))
        finally:
            running.close()
            hand.close()


class _SyncHand:
    """Performs the steps of one script, and holds its stream."""

    def __init__(self, wire: SyncWire) -> None:
        self._http = wire._http
        self._request = wire._request
        self._stream: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def outcome(self, step: Step) -> Any:
        """Return the result of a step; a broken connection as the error to raise in the script."""
        import httpx

        try:
            return self._do(step)
        except httpx.TransportError as error:
            return error

    def _do(self, step: Step) -> Any:
        match step:
            case Pause(seconds):
                time.sleep(seconds)
            case Ask():
                return self._http.send(self._http.build_request(**self._request(step)))
            case Open(ask):
                self.close()
                self._stream = self._http.send(self._http.build_request(**self._request(ask)), stream=True)
                self._chunks = self._stream.iter_bytes()
                if self._stream.is_error:
                    self._stream.read()
                return self._stream
            case NextChunk():
                return next(self._chunks, None)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class AsyncWire(Wire):
    """Performs scripts in the running event loop (asyncio)."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        import httpx  # not before it is needed: a command that asks nothing begins sooner

        super().__init__(url, token, timeout_s)
        self._http = httpx.AsyncClient(**self._options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def perform(self, script: Script[T]) -> T:
        """Return what the script returns."""
        running = Running(script)
        async for _ in self._played(running):
            pass
        value: T = running.value
        return value

    def iterate(self, items: Items[T]) -> AsyncIterator[T]:
        """Yield what the script yields."""
        return self._played(Running(items))

    async def _played(self, running: Running[T]) -> AsyncIterator[T]:
        hand = _AsyncHand(self)
        try:
            while (step := running.step) is not None:
                if isinstance(step, Item):
                    yield step.value
                    running.answer(None)
                else:
                    running.answer(await hand.outcome(step))
        finally:
            running.close()
            await hand.close()


class _AsyncHand:
    """Performs the steps of one script, and holds its stream."""

    def __init__(self, wire: AsyncWire) -> None:
        self._http = wire._http
        self._request = wire._request
        self._stream: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def outcome(self, step: Step) -> Any:
        """Return the result of a step; a broken connection as the error to raise in the script."""
        import httpx

        try:
            return await self._do(step)
        except httpx.TransportError as error:
            return error

    async def _do(self, step: Step) -> Any:
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Ask():
                return await self._http.send(self._http.build_request(**self._request(step)))
            case Open(ask):
                await self.close()
                self._stream = await self._http.send(self._http.build_request(**self._request(ask)), stream=True)
                self._chunks = self._stream.aiter_bytes()
                if self._stream.is_error:
                    await self._stream.aread()
                return self._stream
            case NextChunk() if self._chunks is not None:
                return await anext(self._chunks, None)

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
