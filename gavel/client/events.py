"""Server-sent events, resumed after a lost connection: events of the service, and logs as they are written."""

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from gavel.client.errors import GavelApiError, ServiceUnreachable
from gavel.client.script import Ask, Item, Items, Listing, NextChunk, Open, Pause, Script, answered, part

SILENCE_S = (
    45.0  # seconds; the service sends something every 15 s; after this time without anything the stream is opened again
)
RETRY_S = 1.0
RESTARTS_MAX = 60  # attempts to reach a service again that had answered before
BUSY = (429, 503)
LOG_LIMIT_BYTES = 65_536


class WatchEvent(TypedDict):
    """An event: `event` is hello, reset, or one of the requested kinds, `data` the object that it is about."""

    event: str
    data: dict[str, Any]
    position: int


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, its text, and the position after it."""

    event: str
    text: str
    id: str


class EventReader:
    """Parses events from bytes as they arrive (HTML standard, section 9.2.6). `last_id`: where to resume.

    Lines end at CR, LF or both and nowhere else: a log may hold U+2028, which `str.splitlines` would cut at.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s = RETRY_S
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begin()

    def _begin(self) -> None:
        self._rest = ""
        self._fields: dict[str, str] = {}
        self._data: list[str] = []

    def begin_again(self) -> float:
        """Forget an incomplete event of a stream that ended. Return the seconds to wait before the next stream."""
        retry_s, self.retry_s = self.retry_s, RETRY_S
        self._decoder.reset()
        self._begin()
        return retry_s

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Return the events that this chunk completes."""
        self._rest += self._decoder.decode(chunk)
        tail = "\r" if self._rest.endswith("\r") else ""  # the LF after it may be in the next chunk
        *lines, self._rest = self._rest.removesuffix(tail).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest += tail
        for line in lines:
            if line:
                self._take(*line.partition(":")[::2])
            elif event := self._finished():
                yield event

    def _take(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_s = int(value) / 1000
        else:
            self._fields[name] = value

    def _finished(self) -> ServerEvent | None:
        fields, data = self._fields, self._data
        self._fields, self._data = {}, []
        self.last_id = fields.get("id", self.last_id)
        return ServerEvent(fields.get("event", "message"), "\n".join(data), self.last_id) if data else None


class Following:
    """A stream of events that is opened again after a lost connection."""

    def __init__(self, path: str, last_id: str = "", **query: Any) -> None:
        self._path = path
        self._query = query
        self._reader = EventReader()
        self._reader.last_id = last_id
        self._is_open = False
        self._failures: int | None = None  # attempts since the service answered; None: it never did

    def more(self) -> Script[list[ServerEvent]]:
        """Return the next events; none if the stream had to be opened or has ended. Raise what any call may raise."""
        import httpx

        if not self._is_open:
            yield from self._open()
            return []
        try:
            chunk: bytes | None = yield NextChunk()
        except httpx.TransportError:
            chunk = None
        if chunk is not None:
            return list(self._reader.feed(chunk))
        self._is_open = False
        yield Pause(self._reader.begin_again())
        return []

    def _open(self) -> Script[None]:
        resume = {"Last-Event-ID": self._reader.last_id} if self._reader.last_id else {}
        ask = Ask(method="GET", path=self._path, params=self._query, headers=resume, patience_s=SILENCE_S)
        try:
            yield from answered(Open(ask), may_repeat=True)
            self._is_open, self._failures = True, 0
        except (ServiceUnreachable, GavelApiError) as error:
            is_refused = isinstance(error, GavelApiError) and error.status not in BUSY
            if is_refused or self._failures is None or self._failures >= RESTARTS_MAX:
                raise
            self._failures += 1
            yield Pause(RETRY_S)


class EventCalls:
    """Calls about events and logs, part of both clients."""

    @Listing
    def watch(self, after: int | None = None, *, kinds: Sequence[str] = ()) -> Items[WatchEvent]:
        """Yield events as they happen, without end. Give a `position` as `after` to resume later.

        `hello` comes first, and again after a lost connection if nothing was missed. `reset`: positions begin anew, so
        read the lists again. Your jobs, and rounds with your leases; for an operator everything. `kinds`: only these of
        job, round, allocation and changed; `changed` counts what was written and comes only when asked for.
        """
        stream = Following("/v1/watch", "" if after is None else str(after), kind=list(kinds))
        while True:
            for event in (yield from stream.more()):
                yield Item(WatchEvent(event=event.event, data=json.loads(event.text), position=int(event.id or 0)))

    @Listing
    def read_logs(self, job_id: str, offset: int = 0, *, follow: bool = False) -> Items[str]:
        """Yield log text up to its present end; `follow`: until the job has ended, as it is written."""
        path = f"/v1/jobs/{part(job_id)}/logs"
        if not follow:
            yield from _log_to_its_end(path, offset)
            return
        stream = Following(path, offset=offset, follow="true")
        while True:
            for event in (yield from stream.more()):
                if event.event == "end":
                    return
                yield Item(str(json.loads(event.text)["text"]))


def log_chunk(path: str, offset: int, limit_bytes: int) -> Script[tuple[bytes, int]]:
    """Return log bytes from an offset, and the next offset to ask for."""
    ask = Ask(method="GET", path=path, params={"offset": offset, "limit": limit_bytes})
    answer = yield from answered(ask, may_repeat=True)
    return answer.content, int(answer.headers["X-Next-Offset"])


def _log_to_its_end(path: str, offset: int) -> Items[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        content, next_offset = yield from log_chunk(path, offset, LOG_LIMIT_BYTES)
        is_over = next_offset == offset
        if text := decoder.decode(content, final=is_over):
            yield Item(text)
        if is_over:
            return
        offset = next_offset
