"""Starts, watches and ends the ranks of one gang: `python -I -S -X utf8 supervisor.py GANG_DIR`.

Standard library only and one thread, so that it starts in milliseconds and outlives the service. The contract is
docs/gang-protocol.md. Order of reading: `Supervisor.run`, then what it calls.
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
from typing import Any, NoReturn

POLL_S = 0.05
CHUNK_BYTES = 1 << 16
LINE_BYTES = 1 << 16
TAIL_LINES, TAIL_BYTES = 20, 4096
CHECKPOINTED_EXIT_CODE = 75
OOM_SCORE = 500  # when memory runs out, the kernel takes a rank before a supervisor or the service
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

libc = ctypes.CDLL(None, use_errno=True)


def boottime_s() -> float:
    """Seconds since this machine booted, sleep included: no change of the wall clock moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_json(path: str, value: object) -> None:
    """Replace a file as a whole: a reader sees the old text or the new, never a part."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(path + ".tmp", path)


def read_json(path: str) -> dict[str, Any]:
    """The object in a file that is only ever replaced as a whole."""
    with open(path, encoding="utf-8") as file:
        value: dict[str, Any] = json.load(file)
    return value


def boot_id() -> str:
    """Changes with each boot of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from field 3 (state) on; the name before it may hold spaces. Raises OSError if there is none."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """When the process began, in ticks since boot; None if it is gone or a zombie."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def descendants(root: int) -> list[int]:
    """Every process below `root`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                children.setdefault(int(stat_fields(int(name))[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


class Log:
    """The output of a job, bounded: at half the limit the log becomes `.1`, and the `.1` before it goes.

    `.base` names the file (by inode) that ends at a known offset since the job's first line; see `gavel.backends.logs`.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._half_bytes = max(1, limit_bytes // 2)
        self._tail = b""
        self._base = self._recover()
        self._open()

    def write(self, output: bytes) -> None:
        """Append; a disk that is full loses output, not the job."""
        self._tail = (self._tail + output)[-TAIL_BYTES:]
        rest = memoryview(output)
        try:
            while rest:
                if self._size >= self._half_bytes:
                    self._rotate()
                written = os.write(self._file, rest[: self._half_bytes - self._size])
                self._size += written
                rest = rest[written:]
        except OSError as problem:
            self._tail = f"[output was lost: {problem}]".encode()

    def tail(self) -> str:
        """The last lines of this gang's output."""
        return "\n".join(self._tail.decode("utf-8", "replace").splitlines()[-TAIL_LINES:])

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self._base += self._size
        write_json(self._path + ".base", {"inode": os.fstat(self._file).st_ino, "end": self._base})
        with contextlib.suppress(FileNotFoundError):  # renamed over, some file systems would write it all to disk
            os.unlink(self._path + ".1")
        os.rename(self._path, self._path + ".1")
        full = self._file
        self._open()
        os.close(full)

    def _recover(self) -> int:
        """Where the current file begins. A supervisor that died within a rotation left its second step to us."""
        if not os.path.exists(self._path + ".base"):
            return 0
        said = read_json(self._path + ".base")
        if os.path.exists(self._path) and os.stat(self._path).st_ino == said["inode"]:
            os.replace(self._path, self._path + ".1")
        return int(said["end"])


class Lease:
    """How long the gang may run. Once over it stays over, whatever the file says later."""

    def __init__(self, directory: str, expires_boottime_s: float) -> None:
        self._path = os.path.join(directory, "lease.json")
        self.expires_boottime_s = expires_boottime_s
        self._seen: tuple[int, int] | None = None
        self._stop = False
        self.ended_by = ""

    def check(self) -> str:
        """Why the gang has to end ("lease" or "stop"), or nothing."""
        if not self.ended_by:
            over = boottime_s() >= self.expires_boottime_s
            self._read()
            self.ended_by = "stop" if self._stop else "lease" if over else ""
        return self.ended_by

    def stop(self, *_: object) -> None:
        """Somebody asked this supervisor to end (SIGTERM): the same as a stop in the file."""
        self._stop = True

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._seen:
            lease = read_json(self._path)
            self._seen = version
            self._stop = self._stop or bool(lease["stop"])
            self.expires_boottime_s = float(lease["expires_boottime_s"])


class Rank:
    """One process of the gang and the pipe that holds its output."""

    def __init__(self, index: int, pid: int, output: int, prefix: bytes) -> None:
        self.index, self.pid, self.output = index, pid, output
        self.exit_code: int | None = None
        self._prefix = prefix
        self._partial = b""

    def lines(self, output: bytes, *, is_last: bool = False) -> bytes:
        """What to log of new output: whole lines with the rank before each, or all of it as it came if alone."""
        if not self._prefix:
            return output
        text = self._partial + output
        cut = text.rfind(b"\n") + 1
        if is_last or len(text) - cut > LINE_BYTES:
            cut = len(text)
        self._partial = text[cut:]
        return b"".join(self._prefix + line + b"\n" for line in text[:cut].splitlines())


class NotStarted(Exception):
    """A rank's program could not be executed."""


def start_rank(index: int, launch: dict[str, Any]) -> Rank:
    """Fork, and return once the program is executing. Raises NotStarted with what went wrong."""
    spec = launch["ranks"][index]
    output, output_end = os.pipe2(os.O_CLOEXEC)
    status, status_end = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_rank(launch["argv"], launch["cwd"], spec, supervisor, (output_end, status_end))
    os.close(output_end)
    os.close(status_end)
    with open(status, "rb") as file:
        problem = file.read()
    if problem:
        os.close(output)
        raise NotStarted(problem.decode("utf-8", "replace"))
    os.set_blocking(output, False)
    prefix = f"[{index}] ".encode() if len(launch["ranks"]) > 1 else b""
    return Rank(index, pid, output, prefix)


def become_rank(argv: list[str], cwd: str, spec: dict[str, Any], supervisor: int, ends: tuple[int, int]) -> NoReturn:
    """In the child: turn into the program. An error is said through the second pipe, which closes at exec."""
    output_end, status_end = ends
    doing = "prepare"
    try:
        os.setsid()  # a program that signals its own group must not reach the supervisor
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        assert os.getppid() == supervisor, "the supervisor died"
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            if int(file.read()) < OOM_SCORE:  # lowering it takes a privilege
                file.write(str(OOM_SCORE))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        doing = f"pin to cpus {spec['cpus']}"
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        doing = f"enter the working directory {cwd!r}"
        os.chdir(cwd)
        doing = f"run the program {argv[0]!r} (PATH is {spec['env'].get('PATH', '')!r})"
        os.execvpe(argv[0], argv, spec["env"])  # noqa: S606
    except BaseException as problem:
        reason = getattr(problem, "strerror", None) or problem
        os.write(status_end, f"cannot {doing}: {reason}"[:TAIL_BYTES].encode("utf-8", "replace"))
    finally:
        os._exit(127)


class Supervisor:
    """One gang from its start to `exit.json`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._launch = read_json(os.path.join(directory, "launch.json"))
        self._lease = Lease(directory, self._launch["lease_expires_boottime_s"])
        self._log = Log(self._launch["log_path"], self._launch["log_bytes"])
        self._selector = selectors.DefaultSelector()
        self._ranks: list[Rank] = []
        self._failure: tuple[int, int] | None = None  # the first rank that failed, and its exit code
        self._is_preempted = False
        self._not_started = ""
        self._ending = ""
        self._kill_at_boottime_s = float("inf")
        self._was_killed = False

    def run(self) -> None:
        """1 announce, 2 start every rank, 3 read, reap and enforce until nothing is left, 4 say how it ended."""
        self._prepare()
        pid = os.getpid()
        self._write("supervisor.json", {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()})
        if not self._lease.check():
            self._start()
        while self._step():
            pass
        for key in list(self._selector.get_map().values()):  # what is still in the pipes; nobody writes any more
            while key.data is not None and self._read(key):
                pass
        outcome, exit_code, message = self._verdict()
        said = {"outcome": outcome, "exit_code": exit_code, "message": message, "log_tail": self._log.tail()}
        self._write("exit.json", said | {"boottime_s": boottime_s()})

    def _prepare(self) -> None:
        if os.getsid(0) != os.getpid():
            os.setsid()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._lease.stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(wake, selectors.EVENT_READ)

    def _start(self) -> None:
        try:
            for index in range(len(self._launch["ranks"])):
                rank = start_rank(index, self._launch)
                self._ranks.append(rank)
                self._selector.register(rank.output, selectors.EVENT_READ, rank)
        except NotStarted as problem:
            self._not_started = str(problem)
            self._kill_at_boottime_s = 0.0
            return
        self._write("started.json", {"boottime_s": boottime_s(), "pids": [rank.pid for rank in self._ranks]})
        cpus = {cpu for rank in self._launch["ranks"] for cpu in rank["cpus"]}
        if cpus:  # a gang that prints much pays for it on its own cores
            os.sched_setaffinity(0, cpus)

    def _step(self) -> bool:
        """One turn; False once no process of the gang is left."""
        wait_s = max(0.0, min(POLL_S, self._lease.expires_boottime_s - boottime_s())) if not self._ending else POLL_S
        for key, _ in self._selector.select(wait_s):
            self._read(key)
        if not self._reap():
            return False
        self._enforce()
        return True

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Read one chunk of what a descriptor holds; False at its end."""
        try:
            output = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        rank: Rank | None = key.data
        if rank is None:
            return True
        self._log.write(rank.lines(output, is_last=not output))
        if not output:
            self._selector.unregister(key.fd)
            os.close(key.fd)
        return bool(output)

    def _reap(self) -> bool:
        """Collect whoever ended; False once there are no children, adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            for rank in self._ranks:
                if rank.pid == pid:
                    self._rank_ended(rank, os.waitstatus_to_exitcode(status))

    def _rank_ended(self, rank: Rank, exit_code: int) -> None:
        rank.exit_code = exit_code
        if exit_code == 0 or self._failure is not None:
            return
        self._failure = (rank.index, exit_code)
        is_over = bool(self._lease.check())
        self._is_preempted = bool(self._ending) or (is_over and (exit_code < 0 or exit_code == CHECKPOINTED_EXIT_CODE))
        if not self._ending and not is_over:
            self._begin_ending("failure")

    def _enforce(self) -> None:
        """SIGTERM at the end of the lease, SIGKILL after the grace, and at once to what outlives the ranks."""
        if not self._ending and self._lease.check():
            self._begin_ending(self._lease.ended_by)
        has_ranks = any(rank.exit_code is None for rank in self._ranks)
        if not has_ranks or boottime_s() >= self._kill_at_boottime_s:
            self._was_killed = self._was_killed or has_ranks
            self._kill_all()

    def _begin_ending(self, why: str) -> None:
        self._ending = why
        self._kill_at_boottime_s = boottime_s() + self._launch["lease_grace_s"]
        for rank in self._ranks:
            if rank.exit_code is None:  # not reaped, so its pid is still its own
                os.kill(rank.pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or became another user's
                os.kill(pid, signal.SIGKILL)

    def _verdict(self) -> tuple[str, int, str]:
        """Outcome, exit code and message."""
        if self._not_started:
            return "not_started", 127, self._not_started
        if not self._ranks:
            return "preempted", 0, "its lease was over before it started"
        if self._failure is None:
            return "exited", 0, ""
        rank, code = self._failure
        if self._is_preempted:
            why = {"lease": "at the end of its lease", "stop": "on request"}[self._lease.ended_by]
            force = f", by force after {self._launch['lease_grace_s']:g} s" if self._was_killed else ""
            return "preempted", code, f"stopped {why}{force}"
        how = f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exited with code {code}"
        return "exited", code, f"rank {rank} {how}"

    def _write(self, name: str, value: object) -> None:
        write_json(os.path.join(self._directory, name), value)


if __name__ == "__main__":
    Supervisor(sys.argv[1]).run()
