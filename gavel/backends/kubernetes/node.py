"""The program of each pod of a gang: `python -m gavel.backends.kubernetes.node WHERE NODE_FOLDER`."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gavel.backends.nodes.gang_agent import Devices, serve_at
from gavel.backends.nodes.protocol import ShardWanted

KINDS = {
    "nvidia.com": "GPU",
    "amd.com": "GPU",
    "gpu.intel.com": "GPU",
    "google.com": "TPU",
    "habana.ai": "HPU",
    "aws.amazon.com": "neuron_cores",
    "huawei.com": "NPU",
}
NAMED = ("MIG-", "GPU-")
DEVICES_MAX = 64


class InPod(Devices):
    """What a pod gives to its ranks: its accelerators, and the interpreter of its image, which it is itself."""

    def __init__(self, given: Sequence[str], python: str) -> None:
        super().__init__(given, lambda resource: KINDS.get(resource.partition("/")[0], ""))
        self._python = python

    def placed(self, shards: tuple[ShardWanted, ...]) -> tuple[ShardWanted, ...]:
        """Return the shards with this pod's devices and, for a job with an image, the image's interpreter."""
        return tuple(self._inside(each) for each in super().placed(shards))

    def _inside(self, wanted: ShardWanted) -> ShardWanted:
        launch = wanted.launch
        if launch is None or not launch.instruction.image:
            return wanted
        python = launch.instruction.python or self._python
        return replace(wanted, launch=replace(launch, instruction=replace(launch.instruction, image="", python=python)))


def in_pod(environment: Mapping[str, str]) -> InPod:
    """Return the accelerators of this pod: as the device plugin names them, else numbered from 0."""
    given = [each for each in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if each.startswith(NAMED)]
    named = given or [str(index) for index in range(DEVICES_MAX)]
    search = environment.get("PATH")
    return InPod(named, shutil.which("python", path=search) or shutil.which("python3", path=search) or "")


def main(where: str, node_folder: str) -> int:
    """Serve one allocation on this node; return the exit code. `where` its box is: a folder, or an address."""
    node = os.environ.get("GAVEL_NODE", "")
    return serve_at(where, node_folder, node=node, cluster="Kubernetes", devices=in_pod(os.environ))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
