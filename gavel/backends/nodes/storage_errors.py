"""What a storage of files raises, whichever it is, as one error of this service."""

from collections.abc import Iterator
from contextlib import contextmanager

from gavel.errors import BackendUnavailable, GavelError


@contextmanager
def answering(storage: str) -> Iterator[None]:
    """Raise BackendUnavailable for what the storage of this name raises in the block; our own errors as they are."""
    try:
        yield
    except GavelError:
        raise
    except Exception as problem:
        raise BackendUnavailable(f"the {storage} does not answer: {problem}") from problem
