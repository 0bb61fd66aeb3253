"""Sequencing and barriers: a task starts after others are done (ESCHER, SoCC '22, section 4, "signal").

One signal is a sequence, several are a barrier. The task may be submitted first: it waits for the names.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    UNBOUNDED,
    Alternative,
    Primitives,
    Write,
    check_at_least,
    eligible,
    seen,
)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Tasks that start once all `signals` are among those `done`; the application says which are.

    A signal is lost with its lease: apply it again as long as somebody may wait.
    """

    signals: tuple[str, ...]
    done: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_at_least("signals", len(self.signals), 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """What is done is said on every node, what is not yet on none."""
        state = cluster.get_cluster_state()
        said = [Write(name, node, UNBOUNDED) for name in self._done() for node in eligible(state, beside)]
        unsaid = [name for name in self.signals if name not in self.done]
        stale = [Write(name, node, 0) for name in unsaid for node in state if seen(state, node, name).capacity]
        cluster.set_resource(*said, *stale)

    def asks(self) -> tuple[Alternative, ...]:
        """One unit of each signal."""
        return (Alternative(dict.fromkeys(self.signals, 1)),)

    def _done(self) -> list[str]:
        return [name for name in self.signals if name in self.done]
