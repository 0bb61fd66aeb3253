"""Starts, watches and ends the processes of one gang: `python -I -S -X utf8 supervisor.py GANG_DIR [WARM_DIR]`.

Standard library only and one thread, so that it starts in milliseconds and outlives the service. The contract is
docs/gang-protocol.md. Order of reading: `Supervisor.run`, then what it calls. With WARM_DIR the ranks are
started before their lease (warm_ranks.py).
"""

import contextlib
import os
import selectors
import signal
import sys
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/supervisor.py"))

from gavel.backends.control_groups import ControlGroup, group_of, memory_of
from gavel.backends.gang_lease import Lease
from gavel.backends.gang_readiness import Readiness
from gavel.backends.lease_rules import is_preemption
from gavel.backends.machine import (
    Lines,
    append_json,
    boot_id,
    boottime_s,
    descendants,
    kills_for_memory,
    read_json,
    start_time,
    stat_fields,
    write_json,
)
from gavel.backends.meeting import reserve_meeting_place
from gavel.backends.memory_watch import MemoryWatch
from gavel.backends.output import Log, Mask
from gavel.backends.output_quota import OutputQuota
from gavel.backends.processes import Begin, BeginAll, Process, begin, begin_all, start_ranks, start_task
from gavel.backends.sandbox_view import environment_of
from gavel.backends.utilization_sampler import sampler_of
from gavel.child_processes import adopt_orphans, exit_text

if TYPE_CHECKING:
    from gavel.backends.health import Health
    from gavel.backends.sandbox import Sandbox
    from gavel.backends.warm_ranks import WarmRanks

__all__ = ["Supervisor", "boot_id", "boottime_s", "descendants", "read_json", "start_time", "stat_fields", "write_json"]

POLL_S = 0.05
CHUNK_BYTES = 1 << 16


class Supervisor:
    """Runs one gang from its start to `exit.json`. `warm`: its ranks, where they were started before the lease."""

    def __init__(self, directory: str, warm: "WarmRanks | None" = None) -> None:
        self._directory = directory
        self._warm = warm
        self._launch = read_json(os.path.join(directory, "launch.json"))
        self._secrets: list[str] = list(self._launch.get("secrets", {}).values())
        self._lease = Lease(directory, self._launch["lease_expires_boottime_s"])
        self._log = Log(self._launch["log_path"], self._launch["log_bytes"])
        self._selector = selectors.DefaultSelector()
        self._ranks: list[Process] = []
        self._tasks: list[Process] = []
        self._sandbox: Sandbox | None = None
        self._group: ControlGroup | None = None
        self._starts = Lines(os.path.join(directory, "starts.jsonl"))
        self._failure: tuple[int, int] | None = None  # the first rank that failed, and its exit code
        self._is_preempted = False
        self._not_started = ""
        self._readiness = Readiness(self._launch, directory, self._lease, self._log)
        self._signalled: set[int] = set()
        self._lost = ""
        self._quota = OutputQuota(self._launch.get("outputs", ""), self._launch.get("output_bytes", 0))
        self._over_quota = ""
        self._memory = MemoryWatch(0)
        self._over_memory = ""
        self._health: Health | None = None
        self._not_live = ""
        self._sampler = sampler_of(self._launch)
        self._ending = ""
        self._kill_at_boottime_s = float("inf")
        self._was_killed = False
        self._kills_for_memory = kills_for_memory()
        self._group_kills = 0

    def run(self) -> None:
        """1 announce, 2 start every rank, 3 read, reap and enforce until nothing is left, 4 say how it ended."""
        self._prepare()
        pid = os.getpid()
        self._write("supervisor.json", {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()})
        if self._readiness.reach():
            self._start()
        while self._step():
            pass
        for key in list(self._selector.get_map().values()):  # the rest in the pipes, to which nobody writes any more
            while isinstance(key.data, Process) and self._read(key):
                pass
        if self._launch.get("image"):
            from gavel.backends.containers import remove_containers

            remove_containers(self._launch)
        if self._group:
            self._group_kills = self._group.kills_for_memory()
            self._group.remove()
        outcome, exit_code, message = self._verdict()
        message = Mask(self._secrets).text(message)
        exit_record = {"outcome": outcome, "exit_code": exit_code, "message": message, "log_tail": self._log.tail()}
        self._write("exit.json", exit_record | {"ended_by": self._lease.ended_by, "boottime_s": boottime_s()})

    def _prepare(self) -> None:
        if os.getsid(0) != os.getpid():
            os.setsid()
        adopt_orphans()
        wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._lease.stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(wake, selectors.EVENT_READ)

    def _start(self) -> None:
        self._meeting = reserve_meeting_place(self._launch)
        if self._launch.get("serving"):
            from gavel.backends.health import health_of

            self._health = health_of(self._launch, self._directory)
        ranks = [self._in_image(str(rank.get("rank", at)), rank) for at, rank in enumerate(self._launch["ranks"])]
        launch = {**self._launch, "ranks": ranks}
        try:
            self._group = self._warm.group if self._warm else group_of(self._launch, self._directory)
            if not (self._group and self._group.limits_memory):
                self._memory = MemoryWatch(memory_of(self._launch))
            with self._in_group():
                self._enter_sandbox()
                self._ranks = self._warm.release(launch) if self._warm else start_ranks(launch, self._begin_all)
        except OSError as problem:
            self._lost = str(problem)
            self._kill_at_boottime_s = 0.0
            return
        for rank in self._ranks:
            self._selector.register(rank.output, selectors.EVENT_READ, rank)
        self._not_started = next((rank.problem for rank in self._ranks if rank.problem), "")
        if self._not_started:
            self._kill_at_boottime_s = 0.0
            return
        self._write("started.json", {"boottime_s": boottime_s(), "pids": [rank.pid for rank in self._ranks]})
        cpus = {cpu for rank in self._launch["ranks"] for cpu in rank["cpus"]}
        if cpus:  # logging much output takes time of the gang's own cores
            os.sched_setaffinity(0, cpus)

    def _in_group(self) -> contextlib.AbstractContextManager[None]:
        """Return what has programs start in the control group of the gang, if it has one."""
        return self._group.entered() if self._group else contextlib.nullcontext()

    def _enter_sandbox(self) -> None:
        """Make the sandbox of the gang, or take that of the ranks which were started early. Raises OSError."""
        if self._launch.get("sandbox"):
            from gavel.backends.sandbox import Sandbox

            self._sandbox = self._warm.sandbox if self._warm else Sandbox(self._launch, environment_of(self._launch))
        if self._sandbox is not None:
            self._selector.register(self._sandbox, selectors.EVENT_READ)

    @property
    def _begin(self) -> Begin:
        """Return what starts a program of the gang."""
        return self._sandbox.begin if self._sandbox else begin

    @property
    def _begin_all(self) -> BeginAll:
        """Return what starts several programs of the gang."""
        return self._sandbox.begin_all if self._sandbox else begin_all

    def _step(self) -> bool:
        """One turn; False once no process of the gang is left."""
        wait_s = max(0.0, min(POLL_S, self._lease.expires_boottime_s - boottime_s())) if not self._ending else POLL_S
        for key, _ in self._selector.select(wait_s):
            self._read(key)
        if not self._reap():
            return False
        self._enforce()
        if not self._ending:
            self._start_tasks()
            self._sample()
        return True

    def _sample(self) -> None:
        """Look at what the ranks use; of containers, which are not below their rank, at all of the gang."""
        ranks = {rank.rank or 0: rank.pid for rank in self._ranks if rank.exit_code is None}
        self._sampler.look({min(ranks, default=0): os.getpid()} if self._launch.get("image") else ranks)

    def _in_image(self, name: str, process: dict[str, Any]) -> dict[str, Any]:
        """Return the process as one that runs in the job's image, if it has one."""
        if not self._launch.get("image"):
            return process
        from gavel.backends.containers import in_container

        return in_container(self._launch, name, process)

    def _start_tasks(self) -> None:
        """Start the tasks that the service has placed since the last look."""
        for spec in self._starts.read():
            with self._in_group():
                task = start_task(self._in_image(spec["task"], spec), self._secrets, self._begin)
            self._tasks.append(task)
            self._selector.register(task.output, selectors.EVENT_READ, task)

    def _say_end(self, task: str, exit_code: int, message: str) -> None:
        append_json(
            os.path.join(self._directory, "ends.jsonl"), {"task": task, "exit_code": exit_code, "message": message}
        )

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Read one chunk from a descriptor; return False at its end."""
        process: Process | None = key.data
        if process is None and key.fileobj is self._sandbox:
            return True  # reaping reads it
        try:
            output = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if process is None:
            return True
        self._log.write(process.lines(output, is_last=not output))
        if not output:
            self._selector.unregister(key.fd)
            os.close(key.fd)
        return bool(output)

    def _reap(self) -> bool:
        """Reap the processes that ended; return False once there are no children, adopted ones included."""
        for pid, status in self._sandbox.ended() if self._sandbox else ():
            self._take_end(pid, status)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if self._sandbox and pid == self._sandbox.pid:
                self._sandbox_ended()
            else:
                self._take_end(pid, status)

    def _take_end(self, pid: int, status: int) -> None:
        for process in self._alive():
            if process.pid == pid:
                self._ended(process, os.waitstatus_to_exitcode(status))

    def _sandbox_ended(self) -> None:
        """Note that what was in the sandbox was killed with it, but for what ended before."""
        assert self._sandbox is not None
        sandbox, self._sandbox = self._sandbox, None
        self._selector.unregister(sandbox)
        for pid, status in sandbox.ended():
            self._take_end(pid, status)
        for process in self._alive():
            self._ended(process, -signal.SIGKILL)

    def _alive(self) -> list[Process]:
        """Return the ranks and tasks that are not reaped yet, so that their pids are still their own."""
        return [process for process in (*self._ranks, *self._tasks) if process.exit_code is None]

    def _ended(self, process: Process, exit_code: int) -> None:
        process.exit_code = exit_code
        if process.rank is None:
            self._tasks.remove(process)  # the process that launched it judges its exit code
            self._say_end(process.name, exit_code, Mask(self._secrets).text(process.problem))
        elif exit_code != 0 and self._failure is None and not self._not_started:
            self._rank_failed(process.rank, exit_code)

    def _rank_failed(self, rank: int, exit_code: int) -> None:
        self._failure = (rank, exit_code)
        is_over = bool(self._lease.check())
        self._is_preempted = is_preemption(exit_code, is_ending=bool(self._ending), is_over=is_over)
        if not self._ending and not is_over:
            self._begin_ending("failure")

    def _enforce(self) -> None:
        """SIGTERM at the end of the lease, SIGKILL after the grace, and at once to what outlives the ranks."""
        if not self._ending and self._lease.check():
            self._begin_ending(self._lease.ended_by)
        if not self._ending and (problem := self._quota.problem()):
            self._over_quota = problem
            self._begin_ending("outputs")
        if not self._ending and (problem := self._memory.problem()):
            self._over_memory, self._ending = problem, "memory"
            self._kill_at_boottime_s = 0.0  # nobody knows how fast it grows
        if not self._ending and self._health:
            self._check_health(self._health)
        if self._ending and self._launch.get("image"):
            self._end_programs()
        has_ranks = any(rank.exit_code is None for rank in self._ranks)
        if not has_ranks or boottime_s() >= self._kill_at_boottime_s:
            self._was_killed = self._was_killed or has_ranks
            self._kill_all()

    def _check_health(self, health: "Health") -> None:
        with contextlib.suppress(OSError):  # the disk is full: the answer is written another time
            health.look()
        if health.problem:
            self._not_live = health.problem
            self._begin_ending("liveness")

    def _begin_ending(self, why: str) -> None:
        self._ending = why
        self._kill_at_boottime_s = boottime_s() + self._launch["lease_grace_s"]
        if not self._launch.get("image"):
            for process in self._alive():
                send = self._sandbox.signal if self._sandbox else os.kill
                send(process.pid, signal.SIGTERM)

    def _end_programs(self) -> None:
        """Send SIGTERM to the programs in containers, once to each: one may start only now."""
        from gavel.backends.containers import programs

        for pid in set(programs(self._launch)) - self._signalled:
            self._signalled.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        ranks = [rank.pid for rank in self._ranks if rank.exit_code is None and not self._sandbox]
        for pid in (*ranks, *descendants(os.getpid())):  # Podman, if it sees its container go first, may end with 0
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or became another user's
                os.kill(pid, signal.SIGKILL)
        if self._group:
            self._group.kill()

    def _verdict(self) -> tuple[str, int, str]:
        """Return outcome, exit code and message."""
        if lost := self._lost or self._readiness.lost:
            return "lost", 0, lost
        if not_started := self._not_started or self._readiness.not_started:
            return "not_started", 127, not_started
        if not self._ranks:
            return "preempted", 0, self._readiness.too_late
        rank, code = self._failure or (0, 0)
        if unfit := self._over_quota or self._not_live:
            return "exited", code or 1, unfit
        if self._over_memory:
            return "exited", code or -signal.SIGKILL, f"rank {rank} was killed: {self._over_memory}"
        if self._failure is None:
            return "exited", 0, ""
        if self._is_preempted:
            why = {"lease": "at the end of its lease", "stop": "on request"}[self._lease.ended_by]
            force = f", by force after {self._launch['lease_grace_s']:g} s" if self._was_killed else ""
            return "preempted", code, f"stopped {why}{force}"
        return "exited", code, f"rank {rank} ended with {exit_text(code)}{self._why_killed(code)}"

    def _why_killed(self, code: int) -> str:
        if code == -signal.SIGKILL and self._group_kills:
            assert self._group is not None
            limit = f"{self._group.memory_bytes / 1e9:.3g} GB"
            return f", at the limit of {limit} of memory that the job asked for on this node (memory_bytes)"
        is_for_memory = code == -signal.SIGKILL and kills_for_memory() > self._kills_for_memory
        return ", killed by the kernel, which was out of memory" if is_for_memory else ""

    def _write(self, name: str, value: object) -> None:
        write_json(os.path.join(self._directory, name), value)


def supervise(directory: str, warm_folder: str = "") -> None:
    """Run the gang from its start to its end; with a warm folder only if its lease begins."""
    if not warm_folder:
        Supervisor(directory).run()
        return
    from gavel.backends.warm_ranks import wait_for_lease

    has_begun, warm = wait_for_lease(warm_folder, directory)
    if has_begun:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        os.dup2(os.open(os.path.join(directory, "supervisor.err"), flags, 0o600), 2)
        Supervisor(directory, warm).run()


if __name__ == "__main__":
    supervise(*sys.argv[1:])
