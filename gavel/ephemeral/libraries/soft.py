"""Soft constraints: a preference, and what will do after a time (ESCHER, SoCC '22, section 5).

The paper submits one task for each alternative and answers the late starters "stop"; here the alternatives are part of
one request, so there are no duplicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gavel.ephemeral.libraries.primitives import ANYWHERE, Alternative, Library, Primitives, check_at_least


@dataclass(frozen=True, slots=True)
class Soft:
    """The first choice at once, each further one after another `after_s`; `compose()` is the choice of anything."""

    choices: tuple[Library, ...]
    after_s: float

    def __post_init__(self) -> None:
        check_at_least("after_s", self.after_s, 0.0)
        check_at_least("choices", len(self.choices), 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Every choice, so that each is there when its time comes."""
        for library in self.choices:
            library.apply(cluster, beside)

    def asks(self) -> tuple[Alternative, ...]:
        """The alternatives of all choices, each moved to its time."""
        return tuple(
            replace(each, after_s=each.after_s + index * self.after_s)
            for index, library in enumerate(self.choices)
            for each in library.asks()
        )
