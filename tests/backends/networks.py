"""Hosts of their own on this machine: network namespaces on one bridge, and the cable of each, which can be pulled."""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

CAN_MAKE = os.geteuid() == 0 and shutil.which("ip") is not None


class Hosts:
    """So many namespaces, host i at `address(i)`; this process is at `here`. All gone at the end."""

    def __init__(self, count: int) -> None:
        tag = f"{os.getpid():x}"[-6:]
        self._bridge = f"gvb{tag}"
        self._names = [f"gv{index}{tag}" for index in range(count)]
        self._prefix = f"198.18.{os.getpid() % 256}"  # of the range for tests of networks: nobody is there
        self.here = f"{self._prefix}.1"

    def address(self, index: int) -> str:
        return f"{self._prefix}.{index + 2}"

    def within(self, index: int) -> tuple[str, ...]:
        """A command that runs others there."""
        return ("ip", "netns", "exec", self._names[index])

    def cut(self, index: int) -> None:
        """Nothing comes or goes any more; what runs there runs on."""
        _ip("link", "set", f"{self._names[index]}h", "down")

    def mend(self, index: int) -> None:
        """Its cable is plugged in again."""
        _ip("link", "set", f"{self._names[index]}h", "up")

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.here}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for index, name in enumerate(self._names):
                self._make(name, self.address(index))
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _make(self, name: str, address: str) -> None:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", f"{name}h", "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", name, "link", "set", device, "up")

    def _remove(self) -> None:
        for name in self._names:
            _ip("link", "del", f"{name}h", check=False)
            _ip("netns", "del", name, check=False)
        _ip("link", "del", self._bridge, check=False)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)
