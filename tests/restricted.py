"""Runs a command under the restrictions of a systemd unit, as far as that goes without systemd as the first process.

usage: python -m tests.restricted UNIT_FILE FOLDER... -- COMMAND...

The mounts of ProtectSystem=strict with ReadWritePaths, no capabilities, NoNewPrivileges, and the deny list of system
calls, each by the kernel. FOLDERs are writable as a unit's state directory is.
"""

import configparser
import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def service_of(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit's section Service, each with all its values."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(unit.read_text())
    settings: dict[str, list[str]] = {name: [] for name in parser["Service"]}
    section = unit.read_text().partition("[Service]")[2].partition("\n[")[0]
    for line in section.splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and not name.startswith("#"):
            settings[name].append(value)
    return settings


def mounts(service: dict[str, list[str]], folders: Sequence[str]) -> list[str]:
    """The arguments of bwrap that lay the file system out as the unit has it."""
    assert service["ProtectSystem"] == ["strict"]
    writable = [path for line in service.get("ReadWritePaths", []) for path in line.split()]
    bound = [word for path in (*writable, *folders) for word in ("--bind", path, path)]
    private = ["--tmpfs", "/tmp"] if service.get("PrivateTmp") == ["yes"] else []
    places = [*private, *bound] if private else bound
    return ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc", *places]


def denied(service: dict[str, list[str]]) -> Iterator[str]:
    """The system calls that the unit refuses, if its filter is a deny list."""
    for line in service.get("SystemCallFilter", []):
        if line.startswith("~"):
            for group in line[1:].split():
                yield from members(group)


def members(group: str) -> Iterator[str]:
    """The system calls of a group of systemd, and of the groups in it."""
    asked = ["systemd-analyze", "syscall-filter", group]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    for name in (line.strip() for line in listed if line.strip() and not line.strip().startswith("#")):
        yield from members(name) if name.startswith("@") else [name]


def deny(names: Sequence[str]) -> None:
    """Refuse these system calls with EPERM, in this process and all that it starts."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ALLOW)))
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            action = ctypes.c_uint32(ERRNO | errno.EPERM)
            assert library.seccomp_rule_add(context, action, ctypes.c_int(number), ctypes.c_uint(0)) == 0, name
    assert library.seccomp_load(context) == 0


def run(argv: Sequence[str]) -> int:
    """Run bwrap until its child has ended, which gets the signals that this process gets."""
    process = subprocess.Popen(argv)

    def pass_on(number: int, _frame: object) -> None:
        for child in psutil.Process(process.pid).children():
            child.send_signal(number)

    signal.signal(signal.SIGINT, pass_on)
    return process.wait()


def main(unit: str, *words: str) -> None:
    """Run the command."""
    folders, command = words[: words.index("--")], words[words.index("--") + 1 :]
    if unit == "--":  # inside of the mounts
        deny(folders)
        os.execv(command[0], command)
    service = service_of(Path(unit))
    assert service["NoNewPrivileges"] == ["yes"] and service["CapabilityBoundingSet"] == [""]
    inside = [sys.executable, "-m", "tests.restricted", "--", *sorted(set(denied(service))), "--", *command]
    sys.exit(run(["bwrap", "--die-with-parent", *mounts(service, folders), "--cap-drop", "ALL", "--", *inside]))


if __name__ == "__main__":
    main(*sys.argv[1:])
