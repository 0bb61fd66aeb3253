"""Whatever the process that reads an input sends, the service makes an input or a sentence of it."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends.input_reading import CONTENT, FILES, HEADER, PROBLEM, ReaderSource
from gavel.backends.preparation import PreparationFailed

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@contextmanager
def heard(answers: bytes) -> Iterator[ReaderSource]:
    """A reader that has sent this and ended."""
    requests = os.open(os.devnull, os.O_WRONLY)
    try:
        yield ReaderSource(requests, io.BytesIO(answers), "https://there/x", ["*"])
    finally:
        os.close(requests)


def frame(kind: bytes, content: bytes) -> bytes:
    return HEADER.pack(kind, len(content)) + content


anything = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3))
listings = st.lists(st.lists(anything, max_size=4), max_size=3).map(lambda each: json.dumps(each).encode())
frames = st.builds(frame, st.sampled_from([FILES, CONTENT, PROBLEM, b"x"]), st.one_of(st.binary(max_size=40), listings))


@settings(max_examples=2000 if IS_FULL else 200)
@given(answers=st.one_of(st.binary(max_size=60), st.lists(frames, max_size=3).map(b"".join)))
def test_whatever_a_reader_sends_is_an_input_or_a_sentence(answers: bytes) -> None:
    """A server or a variable of the job may have taken it over: nothing leads out of the input's folder."""
    with suppress(PreparationFailed), heard(answers) as source:
        for each in source.files():
            assert each.size_bytes is None or isinstance(each.size_bytes, int)
            assert not each.path or {"", ".", ".."}.isdisjoint(each.path.split("/"))
            assert isinstance(b"".join(source.read(each)), bytes)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (b"", "its reader ended: it was killed"),
        (b"no such module", "its reader ended: no such module"),
        (HEADER.pack(FILES, 1 << 31), "its reader ended: "),
        (frame(FILES, b"[["), "its reader sent no list of files"),
        (frame(FILES, json.dumps([["../x", 1, ""]]).encode()), "'../x' does not lead below it"),
        (frame(FILES, json.dumps([["", 1, ""]] * 100_001).encode()), "it has 100001 files, and at most 100000"),
        (frame(PROBLEM, b"the server answered 404"), "the server answered 404"),
    ],
)
def test_a_reader_that_sends_no_input_fails_with_what_it_sent(answers: bytes, says: str) -> None:
    with pytest.raises(PreparationFailed) as refused, heard(answers) as source:
        source.files()
    assert says in str(refused.value)
