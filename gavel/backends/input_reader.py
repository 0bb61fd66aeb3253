"""Reads one input for a fetch, as the job's user: `python -I -X utf8 input_reader.py`.

It is asked on its standard input, and answers on its standard output (input_reading.py). What libraries print is
dropped.
"""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/input_reader.py"))

from gavel.backends.input_reading import CONTENT, FILES, PROBLEM, Source, SourceFile, send, sentence_of
from gavel.backends.input_sources import open_source, source_problem
from gavel.backends.preparation import PreparationFailed


def serve(requests: Iterable[str], answers: IO[bytes]) -> None:
    """Answer until nobody asks any more, or something has failed."""
    asked = iter(requests)
    try:
        _, url, hosts = json.loads(next(asked))
        if problem := source_problem(url, hosts):
            raise PreparationFailed(problem)
        with open_source(url, hosts) as source:
            for line in asked:
                _answer(source, json.loads(line), answers)
    except Exception as problem:  # whatever a driver raises: the job ends with it
        with suppress(BrokenPipeError):  # nobody waits for the answer
            send(answers, PROBLEM, sentence_of(problem).encode("utf-8", "replace"))


def _answer(source: Source, request: list[object], answers: IO[bytes]) -> None:
    if request[0] == "files":
        send(answers, FILES, json.dumps([list(each) for each in source.files()]).encode())
        return
    for chunk in source.read(SourceFile(*request[1])):  # type: ignore[misc]
        if chunk:
            send(answers, CONTENT, chunk)
    send(answers, CONTENT)


def main() -> None:
    """Serve the fetch that has started this."""
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    for each in (1, 2):
        os.dup2(null, each)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
