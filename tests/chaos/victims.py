"""The processes of a service and its gangs, by what they are, and what is done to them."""

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from random import Random

import psutil

from gavel.demo.service import ServiceProcess
from tests.e2e.processes import SCHEDULER
from tests.postgresql import Server

SOLVER, SUPERVISOR = "gavel.runner", "supervisor.py"  # what their command lines name
PAUSE_S = (0.1, 6.0)  # from within a tick to longer than the leader's lease


class Victim(StrEnum):
    SERVICE = "service"
    SCHEDULER = "scheduler"
    SOLVER = "solver"
    SUPERVISOR = "supervisor"
    RANK = "rank"
    DATABASE = "database"  # one process of the server, which then restarts all of them and replays its log


def processes_of(victim: Victim, service: ServiceProcess, server: Server | None) -> list[psutil.Process]:
    """The processes that are there now of this kind."""
    reader: Mapping[Victim, Callable[[], list[psutil.Process]]] = {
        Victim.SERVICE: lambda: [service.process],
        Victim.SCHEDULER: lambda: _schedulers(service),
        Victim.SOLVER: lambda: [
            child for each in _schedulers(service) for child in each.children() if SOLVER in child.cmdline()
        ],
        Victim.SUPERVISOR: lambda: [each for each in service.processes_left() if _is_supervisor(each)],
        Victim.RANK: lambda: [each for each in service.processes_left() if not _is_supervisor(each)],
        Victim.DATABASE: lambda: psutil.Process(server.postmaster.pid).children() if server else [],
    }
    with suppress(psutil.NoSuchProcess):
        return reader[victim]()
    return []


def strike(process: psutil.Process, resume_after_s: Callable[[float], None], chance: Random) -> str:
    """Kill it, or less often suspend it for a while; return which of both, "" if it was not there."""
    if chance.random() < 0.7:
        return "killed" if kill(process) else ""
    return "suspended" if suspend(process, resume_after_s, chance) else ""


def kill(process: psutil.Process) -> bool:
    """SIGKILL; return whether it was there to be killed."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


def suspend(process: psutil.Process, resume_after_s: Callable[[float], None], chance: Random) -> bool:
    """SIGSTOP, and SIGCONT after a while that `resume_after_s` waits for; return whether it was there."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGSTOP)
        resume_after_s(chance.uniform(*PAUSE_S))
        process.send_signal(signal.SIGCONT)
        return True
    return False


def _schedulers(service: ServiceProcess) -> list[psutil.Process]:
    return [each for each in service.process.children() if SCHEDULER in each.cmdline()]


def _is_supervisor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(SUPERVISOR in word for word in process.cmdline())
    return False
