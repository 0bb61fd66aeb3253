"""A harness over two local backends as one: the region `eu` has the workers of the checks, `us` one of its own."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.several.backend import SeveralBackend
from gavel.backends.several.names import inner, outer
from gavel.backends.several.region import RegionBackend
from gavel.errors import BackendUnavailable
from gavel.types import Observation, Worker
from tests.backends.clusters import GRACE_S, LocalHarness, eventually

HOME, OTHER = "eu", "us"


class SeveralHarness(LocalHarness):
    """`gavel.backends.harness.Harness` over two local backends, of which the checks use the one in `eu`."""

    def __init__(self, folder: Path) -> None:
        self.there = (LocalAccelerator(worker=Worker(id="a-0", node="here", accelerator_type="a"), cpus=()),)
        super().__init__(folder)
        self.wait_until(lambda seen: True)  # checks ask at once, and regions that have not answered yet are no answer

    def wait_until(self, holds: Callable[[Observation], bool], limit_s: float = 0.0) -> Observation:
        seen: list[Observation] = []

        def look() -> bool:
            with suppress(BackendUnavailable):
                seen[:] = [self.backend.observe()]
            return bool(seen) and holds(seen[0])

        eventually(look, limit_s or self.limit_s)
        return seen[0]

    def worker(self, name: str) -> str:
        return outer(name, HOME)

    def open(self, **over: object) -> SeveralBackend:  # type: ignore[override]
        regions = {HOME: ("local", partial(self.open_region, HOME)), OTHER: ("local", partial(self.open_region, OTHER))}
        return SeveralBackend(
            state_dir=self.folder / "regions",
            logs=self.folder,
            regions=regions,
            clock=self.clock,
            lease_grace_s=GRACE_S,
        )

    @property
    def homes(self) -> tuple[Path, ...]:
        return tuple(self.folder / "regions" / name for name in (HOME, OTHER))

    def open_region(self, name: str) -> RegionBackend:
        """One of the two backends, as a service with both opens it."""
        accelerators = self.here if name == HOME else self.there
        return super().open(state_dir=self.folder / "regions" / name, kept=self.folder, accelerators=accelerators)

    def lose_node(self, name: str) -> None:
        super().lose_node(inner(name))

    def return_node(self, name: str) -> None:
        super().return_node(inner(name))
