"""What the caller of a refused operation reads."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gavel.errors import GavelError


@contextmanager
def refused(error: type[GavelError], sentence: str) -> Iterator[None]:
    """The block raises exactly this error, with exactly this sentence."""
    with pytest.raises(error) as raised:
        yield
    assert type(raised.value) is error
    assert str(raised.value) == sentence
