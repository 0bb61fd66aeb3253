"""The API of a service, served here, at which agents get their orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.conftest import Service, serve


@contextmanager
def an_api(state_dir: Path) -> Iterator[Service]:
    """A real server over this state folder, whose nodes connect to it."""
    state_dir.mkdir(parents=True, exist_ok=True)
    served = serve(
        state_dir, backend="kubernetes", kubernetes={"orders": "connection"}, public_url="http://127.0.0.1:9"
    )
    yield next(served)
    next(served, None)
