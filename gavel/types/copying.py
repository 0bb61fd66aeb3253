"""Copies of records for paths where thousands are changed every second."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")


def changed(record: Record, **values: object) -> Record:
    """Return a copy of a frozen dataclass with slots, in which the fields named have other values.

    As `dataclasses.replace`, in half the time: values are copied from slot to slot without a call of `__init__`. Only
    for records without `__post_init__`; raises AttributeError for a field that the record does not have.
    """
    kind: type = type(record)
    read, setters = _access(kind)
    copy: Record = object.__new__(kind)
    for put, value in zip(setters, read(record), strict=True):
        put(copy, value)
    for name, value in values.items():
        object.__setattr__(copy, name, value)
    return copy


@cache
def _access(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Callable[[Any, Any], None], ...]]:
    """A function that reads all fields of a record at once, and one per field that sets it in a new record."""
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} has a __post_init__: use dataclasses.replace"
    names = [each.name for each in fields(kind)]
    assert len(names) > 1, "of one field alone attrgetter makes no tuple"
    return attrgetter(*names), tuple(vars(kind)[name].__set__ for name in names)
