"""The service's side of tunnels: it writes what it asks agents for into their boxes. See `tunnels`."""

import json
import os
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from gavel.backends.gang import GangKey
from gavel.backends.nodes.letters import PostBox, put
from gavel.backends.nodes.tunnels import FILE, TunnelWanted, read_tunnels, tunnels_of

TUNNELS_MAX = 256  # that one agent is asked for at a time

_writing = threading.Lock()


def ask(boxes: Iterable[Path], wanted: TunnelWanted, now_s: float) -> None:
    """Have the request in each of these boxes; asked again, it is the same one. Raises OSError."""
    for box in boxes:
        _replace(box, [wanted], {wanted.id}, now_s)


def withdraw(boxes: Iterable[Path], tunnel_id: str, now_s: float) -> None:
    """Take a request out of these boxes. One that is gone, since its gang has ended, is left out."""
    for box in boxes:
        with suppress(OSError):
            _replace(box, [], {tunnel_id}, now_s)


def _replace(box: Path, added: list[TunnelWanted], ids: Collection[str], now_s: float) -> None:
    """Replace the requests with these ids, and delete old ones of other processes of the service. Raises OSError.

    Two processes that write at the same time may lose one request, which is then asked for again.
    """
    with _writing:
        before = tunnels_of(read_tunnels(box))
        kept = [each for each in before if each.id not in ids and each.until_s > now_s]
        after = [*kept, *added][-TUNNELS_MAX:]
        if after != [*before]:
            put(box / FILE, json.dumps([asdict(each) for each in after]).encode())


def boxes_of(orders: Path, gang: GangKey) -> list[Path]:
    """Return the boxes of all agents of a gang; none while it has no allocation. `orders`: the folder of all orders."""
    allocations = _folders_in(orders / "allocations")
    own = [each for each in allocations if each.name.startswith(f"{gang[0]}.{gang[1]}.")]
    boxes = [box for each in own or allocations for box in _folders_in(each)]
    return boxes if own else [box for box in boxes if _runs(box, gang)]


def bridge_box(state_dir: Path) -> Path:
    """Return the box of a backend whose agents have none of their own: what is in it, the service itself tells them."""
    return state_dir / "box"


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _runs(box: Path, gang: GangKey) -> bool:
    """Return True if the agent has said that it has a part of the gang: in the allocation of its partner."""
    reply = PostBox(box).reply()
    answer = reply.answer if reply is not None else None
    return answer is not None and any(shard.key == gang for shard in answer.shards)
