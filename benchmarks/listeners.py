"""Many clients of /v1/watch in one process; each records the jobs whose events it receives."""

import asyncio
import json
from collections.abc import Collection
from urllib.parse import urlsplit

DATA = b"data: "


class Listeners:
    """`count` open streams; an async context manager."""

    def __init__(self, url: str, token: str, count: int) -> None:
        self._place, self._token, self._count = urlsplit(url), token, count
        self.received: list[set[str]] = [set() for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._greeted = asyncio.Semaphore(0)

    async def __aenter__(self) -> "Listeners":
        for received in self.received:
            self._tasks.append(asyncio.create_task(self._listen(received)))
        async with asyncio.timeout(60):
            for _ in self.received:
                await self._greeted.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def missed(self, job_ids: Collection[str]) -> int:
        """Return how many (client, job) pairs had no event, for these jobs."""
        return sum(len(set(job_ids) - received) for received in self.received)

    async def until_told(self, job_ids: Collection[str], limit_s: float) -> None:
        """Wait until every client has an event of each of these jobs, or until the time is over."""
        end_s = asyncio.get_running_loop().time() + limit_s
        while self.missed(job_ids) and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(0.1)

    async def _listen(self, received: set[str]) -> None:
        assert self._place.hostname is not None
        reader, writer = await asyncio.open_connection(self._place.hostname, self._place.port, limit=1 << 22)
        head = f"GET /v1/watch?kind=job HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        writer.write(head.encode())
        try:
            async for line in reader:
                if line.startswith(b"event: hello"):
                    self._greeted.release()
                elif line.startswith(DATA):
                    received.add(json.loads(line.removeprefix(DATA)).get("id", ""))
        finally:
            writer.close()
