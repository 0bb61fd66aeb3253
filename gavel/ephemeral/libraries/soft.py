"""Soft constraints: a preference, and what is accepted after a time (ESCHER, SoCC '22, section 5).

The paper submits one task for each alternative and stops those that start later; here the alternatives are part of one
request, so there are no duplicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gavel.ephemeral.libraries.primitives import ANYWHERE, Alternative, Library, Primitives, check_at_least


@dataclass(frozen=True, slots=True)
class Soft:
    """The first choice at once, each further one `after_s` seconds later; `compose()` as a choice accepts any node."""

    choices: tuple[Library, ...]
    after_s: float

    def __post_init__(self) -> None:
        check_at_least("after_s", self.after_s, 0.0)
        check_at_least("choices", len(self.choices), 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Apply every choice, so that its names exist when it opens."""
        for library in self.choices:
            library.apply(cluster, companions)

    def asks(self) -> tuple[Alternative, ...]:
        """Return the alternatives of all choices, each with the time at which its choice opens."""
        return tuple(
            replace(each, after_s=each.after_s + index * self.after_s)
            for index, library in enumerate(self.choices)
            for each in library.asks()
        )
