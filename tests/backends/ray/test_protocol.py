"""What services and agents send each other: values go by the places of fields, which an older agent would mistake."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from gavel.backends.nodes.protocol import PROTOCOL, Answer, Order

SHAPE = (14, "2620d54287bc")
"""The protocol, and a digest of the fields of its messages."""


def messages_in(kind: Any) -> Iterator[type]:
    """Yield the dataclasses that a value of this type may have in it."""
    if is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for each in get_type_hints(kind).values():
            yield from messages_in(each)
    for each in get_args(kind):
        yield from messages_in(each)


def test_a_message_that_has_changed_is_another_protocol() -> None:
    """Where this fails, add 1 to PROTOCOL, so that older agents are replaced, and write both into SHAPE."""
    names = {each.__name__: [field.name for field in fields(each)] for each in messages_in(Order | Answer)}
    assert {"LaunchGang", "Report", "GangExit", "CodeGiven", "SharedFolder"} <= names.keys()
    digest = hashlib.sha256(repr(sorted(names.items())).encode()).hexdigest()[:12]
    assert (PROTOCOL, digest) == SHAPE
