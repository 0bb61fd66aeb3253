"""What a backend says when its disk fails it."""

from collections.abc import Iterator
from contextlib import contextmanager

from gavel.errors import BackendUnavailable


@contextmanager
def answering(doing: str) -> Iterator[None]:
    """A disk that is full or gone is an answer, not a crash: OSError becomes BackendUnavailable."""
    try:
        yield
    except OSError as problem:
        raise BackendUnavailable(f"cannot {doing}: {problem}") from problem
