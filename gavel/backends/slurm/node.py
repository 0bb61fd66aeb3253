"""The program on each node of an allocation: `python -m gavel.backends.slurm.node WHERE NODE_FOLDER [BOXES]`."""

import os
import sys
from collections.abc import Mapping

from gavel.backends.nodes.gang_agent import Devices, serve_at

GPU = "gpu"


def devices_of(environment: Mapping[str, str]) -> Devices:
    """Return the GPUs that Slurm gave to this allocation here."""
    given = environment.get("CUDA_VISIBLE_DEVICES") or environment.get("GPU_DEVICE_ORDINAL") or ""
    return Devices([each for each in given.split(",") if each], lambda name: "GPU" if name.startswith(GPU) else "")


def main(where: str, node_folder: str, boxes: str = "") -> int:
    """Serve one allocation on this node; return the exit code. `where` its box is: a folder, or an address.

    `boxes`: how the names of the boxes begin that are numbered as the nodes of the allocation, whichever Slurm chose;
    "": a box has the name of its node.
    """
    node = os.environ.get("SLURMD_NODENAME", "")
    box = f"{boxes}{os.environ['SLURM_NODEID']}" if boxes else node
    return serve_at(where, node_folder, node=node, cluster="Slurm", devices=devices_of(os.environ), box=box)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
