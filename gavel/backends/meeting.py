"""Where the ranks of a gang meet: the variables by which torch.distributed and jax.distributed find rank 0.

Standard library only: the supervisor reserves a gang's port, and the Ray backend one on the node of rank 0.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

LOOPBACK = "127.0.0.1"
DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
ONEAPI, LEVEL_ZERO = "ONEAPI_DEVICE_SELECTOR", "level_zero:"


def meeting_place(address: str, port: int) -> dict[str, str]:
    """Return the variables that are the same in every rank."""
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
    }


def place_of_rank(
    rank: int, world_size: int, *, local_rank: int, local_world_size: int, node_rank: int
) -> dict[str, str]:
    """Return the variables of one rank: its number among all, and among those of its node."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world_size),
        "NODE_RANK": str(node_rank),
        "JAX_NUM_PROCESSES": str(world_size),
        "JAX_PROCESS_ID": str(rank),
    }


def devices_of_gang(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that show every rank all devices of its gang here, in the order of LOCAL_RANK.

    That is how torchrun starts ranks, and what scripts expect: they use the device with the number LOCAL_RANK.
    """
    shown = {}
    for name in (*DEVICES, ONEAPI):
        prefix = LEVEL_ZERO if name == ONEAPI else ""
        devices = [each[name].removeprefix(prefix) for each in environments if name in each]
        if devices:  # of CPU workers always the same: none
            shown[name] = prefix + ",".join(dict.fromkeys(devices))
    return shown


def reserve_meeting_place(launch: dict[str, Any]) -> "socket.socket | None":
    """Add a meeting place on this machine to every rank, where `launch` asks for one; return what reserves its port.

    The socket is bound and never listens, so that rank 0 can bind the port as well (both say SO_REUSEADDR, as
    torch.distributed and gRPC do), and the kernel gives it to nobody else while this process keeps the socket.
    """
    if not launch.get("reserve_port"):
        return None
    environments = [rank["env"] for rank in launch["ranks"]]
    import socket  # here, so that a supervisor of ranks that have a place starts without it

    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    place = meeting_place(LOOPBACK, reserved.getsockname()[1])
    for each in environments:
        each.update(place)
    return reserved
