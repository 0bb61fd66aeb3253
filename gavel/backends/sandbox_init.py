"""The first process of a sandbox: `main` with the number of its socket, started by bubblewrap (sandbox.py).

It starts programs for the supervisor at the other end of the socket, passes signals on to them, reaps every process of
the sandbox, and says how each program ended. When it ends, the kernel kills what is left in its namespace of processes.
Modules in C only, so that it starts in milliseconds; `marshal` because both ends are the same interpreter.

Before the first of them it compares what is mounted with what the supervisor has checked: a folder that somebody has
replaced meanwhile ends the sandbox.

A message to it: b"places" with a file (device and inode by path), b"start NUMBER" with descriptors (the program as a
file, its output, a pipe for an error, and possibly its input), or b"signal NUMBER SIGNAL". A message of it: b"begun
NUMBER", sent by the program's own process, so that the kernel adds which it is, and b"ended NUMBER STATUS" with what
waitpid has returned.
"""

import _signal  # type: ignore[import-not-found]  # `signal` without its enums: starts sooner
import _socket
import marshal
import os
import select
import sys

from gavel.backends.program_start import become

TYPE_CHECKING = False  # `typing` itself takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

MESSAGE_BYTES = 256
DESCRIPTOR_BYTES = 4
DESCRIPTORS_MAX = 4
HELD = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM)
"""Blocked in what makes the sandbox: a cluster that signals every process must not end it under its programs."""


class Init:
    """Starts, signals and reaps the programs, each of which has a number."""

    def __init__(self, control: _socket.socket) -> None:
        self._control = control
        self._number_of: dict[int, int] = {}  # by pid, of programs that are not reaped
        self._wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve the supervisor until it is gone."""
        waits = select.poll()
        waits.register(self._control, select.POLLIN)
        waits.register(self._wake, select.POLLIN)
        while True:
            for descriptor, _ in waits.poll():
                if descriptor == self._wake:
                    os.read(self._wake, MESSAGE_BYTES)
                elif not self._serve():
                    return
            self._reap()

    def _serve(self) -> bool:
        """Carry out one message; return False once nobody sends any more."""
        room = _socket.CMSG_SPACE(DESCRIPTORS_MAX * DESCRIPTOR_BYTES)
        message, extra, _, _ = self._control.recvmsg(MESSAGE_BYTES, room, _socket.MSG_CMSG_CLOEXEC)
        words = message.decode().split()
        rights = b"".join(each for _, kind, each in extra if kind == _socket.SCM_RIGHTS)
        descriptors = list(memoryview(rights).cast("i"))
        if words and words[0] == "places":
            compare_places(_read(descriptors[0]))
        elif words and words[0] == "start":
            self._start(int(words[1]), descriptors)
        elif words:
            self._pass_on(int(words[1]), int(words[2]))
        return bool(words)

    def _start(self, number: int, descriptors: list[int]) -> None:
        spec = _read(descriptors.pop(0))
        output, status, stdin = (*descriptors, None)[:3]
        assert output is not None and status is not None
        pid = os.fork()
        if pid == 0:
            _signal.set_wakeup_fd(-1)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, HELD)
            ends = (stdin, output, status)
            become(spec["argv"], spec["cwd"], spec, ends, lambda: self._control.send(b"begun %d" % number))
        self._number_of[pid] = number
        for each in descriptors:
            os.close(each)

    def _pass_on(self, number: int, signal: int) -> None:
        """Send a signal to a program that is not reaped, whose pid is so still its own."""
        for pid in [pid for pid, each in self._number_of.items() if each == number]:
            os.kill(pid, signal)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._number_of:
                self._control.send(b"ended %d %d" % (self._number_of.pop(pid), status))


def compare_places(places: dict[str, tuple[int, int]]) -> None:
    """Exit unless at each path that is mounted which has this device and inode.

    A path may have led elsewhere when bubblewrap mounted there, so it must lead to the root of a mount now, and to as
    many of them as paths do.
    """
    points = _mount_points()
    left = list(points.values())
    for path, identity in places.items():
        at, state, mount = _place_at(path)
        if (state.st_dev, state.st_ino) != identity or points.get(mount) != at or at not in left:
            sys.exit(f"{path} was replaced while its sandbox was made")
        left.remove(at)


def _place_at(path: str) -> tuple[str, os.stat_result, str]:
    """Return where a path leads to, what is there, and the number of the mount that it is in."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as problem:
        sys.exit(f"{path} was replaced while its sandbox was made: {problem.strerror}")
    try:
        return os.readlink(f"/proc/self/fd/{place}"), os.fstat(place), _mount_of(place)
    finally:
        os.close(place)


def _mount_points() -> dict[str, str]:
    """Return where each mount of this sandbox is, by the kernel's number of it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split(" ", 5) for line in file]
    return {fields[0]: _unescaped(fields[4]) for fields in lines}


def _unescaped(path: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, sign)
    return path


def _mount_of(descriptor: int) -> str:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        return next(line.split()[1] for line in file if line.startswith("mnt_id:"))


def _read(file: int) -> "Any":
    """Return what the supervisor has written, and close the file."""
    with open(file, "rb") as text:
        return marshal.load(text)  # noqa: S302  of our own supervisor


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of this socket."""
    os.set_inheritable(descriptor, False)
    Init(_socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)).run()
