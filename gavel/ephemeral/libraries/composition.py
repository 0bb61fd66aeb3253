"""Several libraries at once: a task asks what each of them asks (ESCHER, SoCC '22, section 5)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gavel.ephemeral.libraries.primitives import ANYWHERE, Alternative, Library, Primitives, most, total


@dataclass(frozen=True, slots=True)
class Composition:
    """All of the libraries hold; those to the left say where those to the right may choose."""

    libraries: tuple[Library, ...]

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Each library in turn, knowing what a task asks of those before it."""
        for library in self.libraries:
            library.apply(cluster, beside)
            beside = all_of(beside, library.asks())

    def asks(self) -> tuple[Alternative, ...]:
        """The sum of one alternative of each; one with a later alternative in it opens as late as that one."""
        return all_of(*(library.asks() for library in self.libraries))


def compose(*libraries: Library) -> Composition:
    """One library that says what all of them say; of none, one that asks nothing."""
    return Composition(libraries)


def all_of(*asked: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Every sum of one alternative of each, in the order in which they open; an equal sum counts once."""
    found: dict[object, Alternative] = {}
    for each in sorted(_sums(asked), key=lambda each: each.after_s):
        found.setdefault((frozenset(each.requires.items()), frozenset(each.at_least.items())), each)
    return tuple(found.values())


def _sums(asked: Sequence[Sequence[Alternative]]) -> Iterator[Alternative]:
    for chosen in product(*asked):
        opens_s = max((each.after_s for each in chosen), default=0.0)
        at_least = most(each.at_least for each in chosen)
        yield Alternative(total(each.requires for each in chosen), opens_s, at_least)
