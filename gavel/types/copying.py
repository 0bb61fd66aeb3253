"""Copies of records for paths where thousands are changed every second."""

from typing import TypeVar

Record = TypeVar("Record")


def changed(record: Record, **values: object) -> Record:
    """Return a copy of a frozen dataclass without slots, in which the fields named have other values.

    As `dataclasses.replace`, in a tenth of the time: the fields are copied at once, without a call of `__init__`. Only
    for records without `__post_init__`; raises AttributeError for a field that the record does not have.
    """
    before = record.__dict__
    after = {**before, **values}
    if len(after) > len(before):
        raise AttributeError(f"{type(record).__name__} has no field {', '.join(sorted(values.keys() - before.keys()))}")
    copy: Record = object.__new__(type(record))
    object.__setattr__(copy, "__dict__", after)
    return copy
