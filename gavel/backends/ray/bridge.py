"""The process that speaks with Ray, for a service that must outlive whatever Ray does: `python -m ..bridge FD PPID`.

A driver whose control service is gone for long is ended by Ray itself, a call to it may hang, and another cluster needs
another process. So the service asks this child (`gavel.backends.ray.link`), and starts the next when it is gone: all of
a gang's state is in files and in named groups, found again by the next one. Requests and replies are pickled: safe
between these two, as the parent started the child and nobody else holds an end of the socket.
"""

import ctypes
import logging
import os
import re
import signal
import socket
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection

import ray
from ray.exceptions import RayActorError, RayError

from gavel.backends.ray.control import Control
from gavel.backends.ray.words import NAMESPACE, Answer, RaySettings, Seen, Wanted

READY = "ready"
TESTED = ((2, 60), (2, 61))  # from this version on, and below that one
LATE_S = 2.0  # a node whose agent owes an answer for that long is not waited for
POLL_S = 0.002
REACH_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1


class Bridge:
    """Gives orders to agents and hears their answers, one call a node at a time; groups and nodes are `Control`'s."""

    def __init__(self, control: Control, notes: tuple[str, ...], calls: Counter[str]) -> None:
        self._control = control
        self._notes = notes
        self._calls = calls
        self._owed: dict[str, tuple[ray.ObjectRef[Answer], float]] = {}  # Ray id of a node -> answer, since when
        self._answers: dict[str, Answer] = {}

    def exchange(self, wanted: Wanted) -> Seen:
        """What is, after all that was ordered here has been answered, or the time is up."""
        self._control.want(wanted.groups, is_whole=wanted.is_whole)
        for ray_id, order in wanted.orders.items():
            agent = self._control.agent(ray_id)
            if agent is not None and ray_id not in self._owed:
                self._calls["agent"] += 1
                self._owed[ray_id] = (agent.exchange.remote(order), time.monotonic())
        self._wait(wanted)
        nodes = self._control.nodes(self._late())
        answers, self._answers = self._answers, {}
        return Seen(
            nodes=nodes,
            ready=self._control.ready(),
            answers={node.ray_id: answers[node.ray_id] for node in nodes if node.ray_id in answers},
            is_connected=self._control.has_listed,
            problem=self._control.problem(),
            notes=self._notes,
            calls=dict(self._calls),
        )

    def _wait(self, wanted: Wanted) -> None:
        gives_up_at_s = time.monotonic() + wanted.answer_within_s
        while True:
            fresh = [ref for ref, since_s in self._owed.values() if time.monotonic() - since_s < LATE_S]
            groups = self._control.unready(wanted.await_groups)
            remaining_s = gives_up_at_s - time.monotonic()
            if not (fresh or groups) or remaining_s <= 0:
                break
            if fresh:
                ray.wait(fresh, timeout=min(remaining_s, POLL_S if groups else remaining_s))
            else:
                self._control.wait_for_news(min(remaining_s, POLL_S))
            self._take()
        self._take()

    def _take(self) -> None:
        """Collect the answers that have come."""
        by_ref = {ref: ray_id for ray_id, (ref, _) in self._owed.items()}
        done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0) if by_ref else ([], [])
        for ref in done:
            ray_id = by_ref[ref]
            del self._owed[ray_id]
            try:
                self._answers[ray_id] = ray.get(ref)
            except RayActorError as problem:
                self._control.lose_agent(ray_id, problem)
            except RayError as problem:  # it raised: a disk that is full, a folder that another agent has
                self._control.refuse_node(ray_id, problem)
            else:
                self._control.accept_node(ray_id)

    def _late(self) -> frozenset[str]:
        now_s = time.monotonic()
        return frozenset(ray_id for ray_id, (_, since_s) in self._owed.items() if now_s - since_s >= LATE_S)


def connect(settings: RaySettings) -> tuple[str, ...]:
    """Join the cluster; what its operator should know. Raises OSError if nothing listens there, whatever Ray raises.

    Asked first, since Ray tries for most of a minute before it says so.
    """
    listener = re.fullmatch(r"(?:ray://)?([^/]+):([0-9]+)", settings.address)
    if listener is not None:
        socket.create_connection((listener[1], int(listener[2])), timeout=REACH_LIMIT_S).close()
    ray.init(
        address=settings.address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=False,
    )
    return version_notes(ray.__version__)


def version_notes(version: str) -> tuple[str, ...]:
    """A warning if this version of Ray is not one that was tested."""
    low, high = TESTED
    if low <= tuple(int(part) for part in version.split(".")[:2]) < high:
        return ()
    tested = f">={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
    return (f"Ray {version} is outside the range that was tested ({tested})",)


def explained(problem: BaseException, address: str) -> str:
    """One line for an operator: what to do about a connection that did not come about."""
    text = " ".join(str(problem).split())
    lower = text.lower()
    if "version mismatch" in lower:
        return f"Ray at {address}: {text[:200]}"
    if "token" in lower or "failed to connect to ray cluster" in lower:  # it listens, so it is not the address
        return f"Ray at {address} refuses us: start the service with its RAY_AUTH_TOKEN and RAY_AUTH_MODE=token"
    return f"no Ray cluster answers at {address} ({type(problem).__name__}): check ray_address, and that it runs"


def main(descriptor: int, parent_pid: int) -> None:
    """Answer requests from the parent until it closes its end."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before we asked
        sys.exit(1)
    joined: Connection[object, object] = Connection(descriptor)
    with joined as connection:
        settings = connection.recv()
        assert isinstance(settings, RaySettings)
        try:
            notes = connect(settings)
        except Exception as problem:  # whatever Ray raises, the parent is to hear of it
            connection.send(explained(problem, settings.address))
            raise
        calls: Counter[str] = Counter()
        control = Control(settings, calls)
        control.start()
        bridge = Bridge(control, notes, calls)
        connection.send(READY)
        while True:
            try:
                wanted = connection.recv()
            except EOFError:
                os._exit(0)  # leaving Ray in good order may hang; groups and agents are detached
            assert isinstance(wanted, Wanted)
            connection.send(bridge.exchange(wanted))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
