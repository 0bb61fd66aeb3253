"""What each call does, defined once for both clients: a generator that yields steps and receives their results.

A client performs the steps, blocking or awaiting (wires.py); the generator uses no socket and no clock. To add a call,
write a method in one of the classes of calls: with `@Method` it returns a `Script`, with `@Listing` it yields items.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote

from gavel.client.errors import GavelApiError, ServiceUnreachable, parsed, refusal

if TYPE_CHECKING:
    import httpx

    from gavel.client.wires import AsyncWire, SyncWire

P = ParamSpec("P")
T = TypeVar("T")

PAUSES_S = (0.1, 0.2, 0.4, 0.8)  # seconds between the attempts of a call that may be repeated safely
PAGE_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send one request; the result is an `httpx.Response`. The service may take `patience_s` seconds longer."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request whose answer is read by chunks. It replaces the stream that was open, if any."""

    ask: Ask


@dataclass(frozen=True, slots=True)
class NextChunk:
    """Read the next chunk of the open stream; the result is bytes, or None at its end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """Yield this to the caller's iteration."""

    value: T


Step = Ask | Open | NextChunk | Pause
Script = Generator[Step, Any, T]
Items = Generator[Step | Item[T], Any, None]


class Method(Generic[P, T]):
    """A method of both clients with one result: `Client` returns it, `AsyncClient` awaits it."""

    def __init__(self, script: Callable[Concatenate[Any, P], Script[T]]) -> None:
        self._script = script
        update_wrapper(self, script)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "SyncWire", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncWire", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _bound(self._script, client.perform)


class Listing(Generic[P, T]):
    """A method of both clients that yields items: an iterator of `Client`, an async iterator of `AsyncClient`."""

    def __init__(self, script: Callable[Concatenate[Any, P], Items[T]]) -> None:
        self._script = script
        update_wrapper(self, script)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "SyncWire", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncWire", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _bound(self._script, client.iterate)


def _bound(script: Callable[..., Any], play: Callable[[Any], Any]) -> Callable[..., Any]:
    def bound(*arguments: Any, **named: Any) -> Any:
        return play(script(None, *arguments, **named))

    return update_wrapper(bound, script)


# --- what scripts are made of


def get(path: str, **query: Any) -> Script[Any]:
    """Return the JSON answer of a path. Repeated after lost connections."""
    given = {name: value for name, value in query.items() if value is not None}
    return call("GET", path, params=given, may_repeat=True)


def listed(path: str, **query: Any) -> Script[Any]:
    """Yield the items of a list that comes in one answer."""
    return (yield from get(path, **query))["items"]


def call(method: str, path: str, *, may_repeat: bool = False, **request: Any) -> Script[Any]:
    """Return the JSON answer to one request. Raise GavelApiError, ServiceUnreachable."""
    answer = yield from answered(Ask(method=method, path=path, **request), may_repeat=may_repeat)
    if (value := parsed(answer)) is None:
        where = answer.url.copy_with(raw_path=b"/")
        raise GavelApiError(answer.status_code, "The answer is not Gavel's", f"is {where} the right address?")
    return value


def asked(
    method: str, path: str, wait_s: float, headers: Mapping[str, str] | None = None, **request: Any
) -> Script[Any]:
    """Return the operation of a command to the scheduler: ended, or pending after `wait_s`."""
    prefer = {"Prefer": f"wait={wait_s:g}", **(headers or {})}
    return call(method, path, headers=prefer, patience_s=wait_s, **request)


def answered(step: Ask | Open, *, may_repeat: bool) -> "Script[httpx.Response]":
    """Return the answer. Raise GavelApiError if it is a refusal."""
    import httpx

    for pause_s in (*(PAUSES_S if may_repeat else ()), None):
        try:
            answer: httpx.Response = yield step
            break
        except httpx.TransportError as error:
            if pause_s is None:
                where = error.request.url.copy_with(raw_path=b"/")
                raise ServiceUnreachable(f"no answer from {where}: {str(error) or type(error).__name__}") from error
        yield Pause(pause_s)
    if answer.is_error:
        raise refusal(answer)
    return answer


def paged(path: str, cursor: str, next_cursor: str, limit: int | None, **query: Any) -> Items[Any]:
    """Yield the items of a list, at most `limit`; pages are fetched as they are needed."""
    wanted = 2**63 if limit is None else limit
    while wanted > 0:
        page = yield from get(path, limit=min(wanted, PAGE_LIMIT), **query)
        for each in page["items"]:
            yield Item(each)
        wanted -= len(page["items"])
        if page[next_cursor] is None:
            return
        query[cursor] = page[next_cursor]


def part(name: str) -> str:
    """Return any text as one segment of a path."""
    return quote(name, safe="")
