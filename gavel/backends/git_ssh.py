"""How git uses ssh for a job: with the key that is a secret, and nothing of the service's user."""

import shlex
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

SSH_KEY = "GIT_SSH_KEY"
ASKS = "an operator asks the host's owner"
ALONE = (
    "ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
    "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
)  # fmt: skip


def ssh_command(folder: Path, known_hosts: str, key: str | None) -> str:
    """Return the command line of ssh, for a shell; write the private key into the folder. Raises OSError."""
    identity = ["-o", "IdentityFile=none"]
    if key is not None:
        path = folder / "key"
        path.touch(mode=0o600)
        path.write_text("\n".join([*key.strip().splitlines(), ""]), encoding="utf-8")  # ssh reads no \r\n
        identity = ["-i", str(path)]
    return shlex.join([*ALONE, "-o", f"GlobalKnownHostsFile={known_hosts}", *identity])


def has_passphrase(key: str) -> bool:
    """Return whether a private key is of no use without a passphrase."""
    load = load_ssh_private_key if "BEGIN OPENSSH" in key else load_pem_private_key
    with suppress(ValueError, UnsupportedAlgorithm):  # what is wrong with a key is for ssh to say
        try:
            load(key.strip().encode(), None)
        except TypeError:
            return True
    return False


def ssh_cure(errors: str, known_hosts: str, *, has_key: bool) -> str:
    """Return what to do about what ssh printed; "" if there is nothing to add."""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in errors:
        return f"{ASKS} for the new key, and replaces the old one in {known_hosts} (git_known_hosts)"
    if "Host key verification failed" in errors:
        return f"{ASKS} for its key, and adds it to {known_hosts} (git_known_hosts)"
    if "Load key" in errors:
        return f"the secret {SSH_KEY} has no private key that ssh can read: store the whole file"
    if "Permission denied" not in errors:
        return ""
    if has_key:
        return f"the host does not take the key in {SSH_KEY}: its public part has to be allowed there"
    return f"store a private key that the host takes as a secret, and name it: --secret {SSH_KEY}"
