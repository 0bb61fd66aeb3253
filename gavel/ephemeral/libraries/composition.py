"""Several libraries at once: a task asks what each of them asks (ESCHER, SoCC '22, section 5)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gavel.ephemeral.libraries.primitives import ANYWHERE, Alternative, Library, Primitives, most, total


@dataclass(frozen=True, slots=True)
class Composition:
    """All of the libraries apply; those to the left limit the nodes from which those to the right choose."""

    libraries: tuple[Library, ...]

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Apply each library in turn, given what a task asks of the libraries before it."""
        for library in self.libraries:
            library.apply(cluster, companions)
            companions = all_of(companions, library.asks())

    def asks(self) -> tuple[Alternative, ...]:
        """Return each sum of one alternative of each library; a sum opens when the latest of its parts does."""
        return all_of(*(library.asks() for library in self.libraries))


def compose(*libraries: Library) -> Composition:
    """Return one library that applies all of them; without libraries, one that asks nothing."""
    return Composition(libraries)


def all_of(*asked: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Return every sum of one alternative of each, in the order in which they open; equal sums count once."""
    distinct: dict[object, Alternative] = {}
    for each in sorted(_sums(asked), key=lambda each: each.after_s):
        distinct.setdefault((frozenset(each.requires.items()), frozenset(each.at_least.items())), each)
    return tuple(distinct.values())


def _sums(asked: Sequence[Sequence[Alternative]]) -> Iterator[Alternative]:
    for chosen in product(*asked):
        opens_s = max((each.after_s for each in chosen), default=0.0)
        at_least = most(each.at_least for each in chosen)
        yield Alternative(total(each.requires for each in chosen), opens_s, at_least)
