"""The process that speaks with Ray, for a service that must outlive whatever Ray does: `python -m ..bridge FD PPID`.

A driver whose control service is gone for long is ended by Ray itself, a call to it may hang, and another cluster needs
another process. So the service asks this child (`gavel.backends.ray.link`), and starts the next when it is gone: all of
a gang's state is in files and in named groups, found again by the next one. Requests and replies are pickled: safe
between these two, as the parent started the child and nobody else holds an end of the socket.
"""

import logging
import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import ray
from ray.exceptions import RayActorError, RayError

from gavel.backends.nodes.code_packs import CodePacks
from gavel.backends.nodes.protocol import Answer, CodeAsked, Order, Seen, Wanted
from gavel.backends.nodes.tunnels import TunnelFile, TunnelWanted
from gavel.backends.ray.control import Control
from gavel.backends.ray.object_store import stored
from gavel.backends.ray.protocol import NAMESPACE, RaySettings
from gavel.child_processes import die_with

READY = "ready"
TESTED = ((2, 60), (2, 61))  # from this version on, and below that one
LATE_S = 2.0  # seconds without an answer, after which a node is not waited for
POLL_S = 0.002
REACH_LIMIT_S = 5.0


class Bridge:
    """Sends orders to agents and collects their answers, one call a node at a time; `Control` has groups and nodes."""

    def __init__(
        self, control: Control, packs: CodePacks, notes: tuple[str, ...], calls: Counter[str], box: Path
    ) -> None:
        self._tunnels = TunnelFile(box)
        self._carried: dict[str, tuple[TunnelWanted, ...]] = {}  # Ray id of a node -> the tunnels it was told of last
        self._control = control
        self._packs = packs
        self._asked: dict[str, tuple[CodeAsked, ...]] = {}  # Ray id of a node -> the code that it lacked last
        self._notes = notes
        self._calls = calls
        self._unanswered: dict[str, tuple[ray.ObjectRef[Answer], float]] = {}  # Ray id of a node -> answer, since when
        self._answers: dict[str, Answer] = {}

    def exchange(self, wanted: Wanted) -> Seen:
        """Return the state of the cluster once all orders are answered, or the time is up."""
        self._control.want(wanted.groups, is_whole=wanted.is_whole)
        made: list[CodeAsked] = []
        for node_id, order in wanted.orders.items():
            agent = self._control.agent(node_id)
            if agent is not None and node_id not in self._unanswered:
                self._calls["agent"] += 1
                code = self._packs.given(self._asked.pop(node_id, ()), made)
                sent = agent.exchange.remote(replace(order, code=code))
                self._unanswered[node_id] = (sent, time.monotonic())
        self._carry(wanted.orders)
        self._wait(wanted)
        nodes = self._control.nodes(self._late())
        answers, self._answers = self._answers, {}
        return Seen(
            nodes=nodes,
            ready=self._control.ready(),
            answers={node.node_id: answers[node.node_id] for node in nodes if node.node_id in answers},
            is_connected=self._control.has_listed,
            problem=self._control.problem(),
            notes=self._notes,
            calls=dict(self._calls),
        )

    def _carry(self, orders: Mapping[str, Order]) -> None:
        """Tell each node which tunnels are wanted of gangs that have a part there, if that is news; without waiting."""
        tunnels = self._tunnels.wanted()
        for node_id, order in orders.items() if tunnels or self._carried else ():
            gangs = {shard.key for shard in order.shards}
            own = tuple(each for each in tunnels if each.gang in gangs)
            agent = self._control.agent(node_id)
            if own != self._carried.get(node_id, ()) and hasattr(agent, "carry"):  # an earlier version has no such call
                agent.carry.remote(own)
                self._carried[node_id] = own
        self._carried = {node_id: own for node_id, own in self._carried.items() if own}

    def _wait(self, wanted: Wanted) -> None:
        gives_up_at_s = time.monotonic() + wanted.answer_within_s
        while True:
            fresh = [ref for ref, since_s in self._unanswered.values() if time.monotonic() - since_s < LATE_S]
            groups = self._control.unready(wanted.await_groups)
            remaining_s = gives_up_at_s - time.monotonic()
            if not (fresh or groups) or remaining_s <= 0:
                break
            if fresh:
                ray.wait(fresh, timeout=min(remaining_s, POLL_S if groups else remaining_s))
            else:
                self._control.wait_for_group(min(remaining_s, POLL_S))
            self._take()
        self._take()

    def _take(self) -> None:
        """Collect the answers that have come."""
        by_ref = {ref: node_id for node_id, (ref, _) in self._unanswered.items()}
        done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0) if by_ref else ([], [])
        for ref in done:
            node_id = by_ref[ref]
            del self._unanswered[node_id]
            try:
                answer = ray.get(ref)
                self._asked[node_id] = answer.code
                self._answers[node_id] = replace(answer, code=())
            except RayActorError as problem:
                self._control.lose_agent(node_id, problem)
            except RayError as problem:  # for example a full disk, or a folder that another agent uses
                self._control.refuse_node(node_id, problem)
            else:
                self._control.accept_node(node_id)

    def _late(self) -> frozenset[str]:
        now_s = time.monotonic()
        return frozenset(node_id for node_id, (_, since_s) in self._unanswered.items() if now_s - since_s >= LATE_S)


def connect(settings: RaySettings) -> tuple[str, ...]:
    """Join the cluster and return notes for its operator. Raises OSError if nothing listens there, and Ray's errors.

    The address is tried first, since Ray itself takes most of a minute to report that nothing listens.
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
    """Return a warning if this version of Ray was not tested."""
    low, high = TESTED
    if low <= tuple(int(part) for part in version.split(".")[:2]) < high:
        return ()
    tested = f">={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
    return (f"Ray {version} is outside the range that was tested ({tested})",)


def explained(problem: BaseException, address: str) -> str:
    """Return one line for an operator: what to do about a connection that failed."""
    text = " ".join(str(problem).split())
    lower = text.lower()
    if "version mismatch" in lower:
        return f"Ray at {address}: {text[:200]}"
    if "token" in lower or "failed to connect to ray cluster" in lower:  # something listens, so the address is right
        return f"Ray at {address} refuses us: start the service with its RAY_AUTH_TOKEN and RAY_AUTH_MODE=token"
    return f"no Ray cluster answers at {address} ({type(problem).__name__}): check ray_address, and that it runs"


def main(descriptor: int, parent_pid: int) -> None:
    """Answer requests from the parent until it closes its end."""
    die_with(parent_pid)
    joined: Connection[object, object] = Connection(descriptor)
    with joined as connection:
        settings = connection.recv()
        assert isinstance(settings, RaySettings)
        try:
            notes = connect(settings)
        except Exception as problem:  # whatever Ray raises is reported to the parent
            connection.send(explained(problem, settings.address))
            raise
        calls: Counter[str] = Counter()
        control = Control(settings, calls)
        control.start()
        bridge = Bridge(control, CodePacks(settings.code_store, stored), notes, calls, Path(settings.box))
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
