"""The first process of a sandbox: `python -I -S -X utf8 sandbox_init.py SOCKET`, started by bubblewrap.

It starts programs for the supervisor at the other end of the socket, passes signals on to them, reaps every process of
the sandbox, and says how each program ended. When it ends, the kernel kills what is left in its namespace of processes.
Modules in C only, so that it starts in milliseconds; `marshal` because both ends are the same interpreter.

A message to it: b"start NUMBER" with descriptors (the program as a file, its output, a pipe for an error, and possibly
its input), or b"signal NUMBER SIGNAL". A message of it: b"begun NUMBER", sent by the program's own process, so that the
kernel adds which it is, and b"ended NUMBER STATUS" with what waitpid has returned.
"""

import _signal  # type: ignore[import-not-found]  # `signal` without its enums: starts sooner
import _socket
import marshal
import os
import select
import sys

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/sandbox_init.py"))

from gavel.backends.program_start import become

MESSAGE_BYTES = 256
DESCRIPTOR_BYTES = 4
DESCRIPTORS_MAX = 4


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
        if words and words[0] == "start":
            descriptors = b"".join(each for _, kind, each in extra if kind == _socket.SCM_RIGHTS)
            self._start(int(words[1]), list(memoryview(descriptors).cast("i")))
        elif words:
            self._pass_on(int(words[1]), int(words[2]))
        return bool(words)

    def _start(self, number: int, descriptors: list[int]) -> None:
        with open(descriptors.pop(0), "rb") as file:
            spec = marshal.load(file)  # noqa: S302  of our own supervisor
        output, status, stdin = (*descriptors, None)[:3]
        assert output is not None and status is not None
        pid = os.fork()
        if pid == 0:
            _signal.set_wakeup_fd(-1)
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


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of this socket."""
    os.set_inheritable(descriptor, False)
    Init(_socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
