"""A real sshd on a free loopback port, with keys of its own; whoever runs the tests may log in with one key."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.conftest import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/usr/local/sbin")
WITH_SSHD = pytest.mark.skipif(SSHD is None, reason="there is no sshd here: install openssh-server")
CONFIG = """Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


@dataclass(frozen=True)
class SshServer:
    """`known_hosts`: a file that has its host key for 127.0.0.1, another one for localhost, and none for 127.0.0.2."""

    folder: Path
    port: int
    known_hosts: Path

    def url(self, path: Path, host: str = "127.0.0.1") -> str:
        return f"ssh://{getpass.getuser()}@{host}:{self.port}{path}"

    @property
    def key(self) -> str:
        """The private key that may log in."""
        return (self.folder / "key").read_text()

    def log(self) -> str:
        return (self.folder / "log").read_text()


def make_key(path: Path, passphrase: str = "") -> str:
    """Make a key pair; return its private part."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, timeout=60)
    return path.read_text()


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """An sshd whose files are in the folder."""
    assert SSHD is not None
    port = _free_port()
    make_key(folder / "host_key")
    make_key(folder / "key")
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    make_key(folder / "old_key")
    keys = {"127.0.0.1": "host_key.pub", "localhost": "old_key.pub"}
    lines = [f"[{host}]:{port} {(folder / name).read_text()}" for host, name in keys.items()]
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("".join(lines))
    if os.geteuid() == 0:  # sshd of root refuses to start without it, and only systemd makes it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with open(folder / "log", "wb") as log:
        sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stdin=subprocess.DEVNULL, stderr=log)
    server = SshServer(folder, port, known_hosts)
    try:
        wait_until(lambda: "Server listening" in server.log() or sshd.poll() is not None)
        assert sshd.poll() is None, server.log()
        yield server
    finally:
        with suppress(ProcessLookupError):
            sshd.terminate()
        sshd.wait(20)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
