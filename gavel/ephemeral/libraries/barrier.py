"""Sequencing and barriers: a task starts after others are done (ESCHER, SoCC '22, section 4, "signal").

With one signal it is a sequence, with several a barrier. The task may be submitted first: it waits for the names.
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
    """Tasks that start once all `signals` are among those `done`; the application states which are.

    A signal ends with its lease: apply it again as long as a task may wait for it.
    """

    signals: tuple[str, ...]
    done: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_at_least("signals", len(self.signals), 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the signals that are done on every node, and remove the others from all nodes."""
        state = cluster.get_cluster_state()
        writes = [Write(name, node, UNBOUNDED) for name in self._done() for node in eligible(state, companions)]
        pending = [name for name in self.signals if name not in self.done]
        stale = [Write(name, node, 0) for name in pending for node in state if seen(state, node, name).capacity]
        cluster.set_resource(*writes, *stale)

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of each signal."""
        return (Alternative(dict.fromkeys(self.signals, 1)),)

    def _done(self) -> list[str]:
        return [name for name in self.signals if name in self.done]
