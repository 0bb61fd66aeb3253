"""The API of a service, served here, at which agents get their orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gavel.backends.nodes.allocation import Allocation
from gavel.backends.nodes.connection import Access
from gavel.backends.nodes.letters import write_epoch
from gavel.backends.nodes.protocol import Group
from gavel.backends.nodes.relay import ORDERS_PATH, made_key
from tests.api.conftest import Service, serve

GROUP = Group(name="gavel/j1/1", bundles=(("n0", "gpu", 1),))


def an_allocation(api: Service, group: Group = GROUP) -> tuple[Allocation, Access]:
    """An allocation of one agent, and how that agent reaches its service."""
    orders = api.settings.orders_dir
    assert orders is not None
    made = Allocation.make(orders / "allocations", group, epoch=1000)
    write_epoch(orders, 1000)
    url = f"{api.url}{ORDERS_PATH}/{made.folder.name}/n0"
    return made, Access(url=url, key=made_key(made.folder))


@contextmanager
def an_api(state_dir: Path, listens_on: str = "127.0.0.1") -> Iterator[Service]:
    """A real server over this state folder, whose nodes connect to it."""
    state_dir.mkdir(parents=True, exist_ok=True)
    section = {"orders": "connection"}
    served = serve(
        state_dir, listens_on=listens_on, backend="kubernetes", kubernetes=section, public_url="http://127.0.0.1:9"
    )
    yield next(served)
    next(served, None)
