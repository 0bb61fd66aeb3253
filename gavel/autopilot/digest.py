"""A digest of what a decision was made from: equal inputs have equal digests, in every process."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel


def digest(value: Any) -> str:
    """Return the SHA-256 of the value, 64 hexadecimal digits: dataclasses by their fields, mappings by sorted keys."""
    of = hashlib.sha256()
    for piece in _pieces(value):
        of.update(piece)
    return of.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield the bytes of the value, each part with its length or its name, so that no two values look alike."""
    match value:
        case np.ndarray():
            yield f"array {value.shape} {value.dtype}:".encode()
            yield np.ascontiguousarray(value).tobytes()
        case BaseModel():
            yield from _pieces(value.model_dump(mode="json"))
        case Mapping():
            yield f"map {len(value)}:".encode()
            for key in sorted(value, key=repr):
                yield from (repr(key).encode(), *_pieces(value[key]))
        case str() | bytes():
            yield repr(value).encode()
        case Sequence():
            yield f"list {len(value)}:".encode()
            for each in value:
                yield from _pieces(each)
        case _ if is_dataclass(value):
            yield f"{type(value).__name__}:".encode()
            for each in fields(value):
                yield from (each.name.encode(), *_pieces(getattr(value, each.name)))
        case _:
            yield repr(value).encode()
