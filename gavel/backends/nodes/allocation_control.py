"""The thread that keeps the allocations that are wanted: calls to a cluster may take long. A backend adds its calls."""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from gavel.backends.nodes.allocation import Allocation
from gavel.backends.nodes.letters import read_epoch
from gavel.backends.nodes.protocol import Group, ListedNode
from gavel.errors import BackendUnavailable

log = structlog.get_logger("gavel.allocations")

LOOK_EVERY_S = 1.0
RETRY_S = 30.0  # seconds that a place is not tried again

A = TypeVar("A", bound=Allocation)


class AllocationControl(threading.Thread, Generic[A]):
    """Makes, keeps and ends allocations. What it knows of them and of the nodes is read by the link.

    `kind`: the class of the allocations; `problem`: what is said until the cluster has answered for the first time;
    `refused`: what the cluster raises that is no fault of ours.
    """

    def __init__(
        self, folder: Path, kind: type[A], cluster: str, problem: str, refused: tuple[type[Exception], ...] = ()
    ) -> None:
        super().__init__(name=f"gavel-{cluster.lower()}-control", daemon=True)
        self._kind = kind
        self._expected: tuple[type[Exception], ...] = (*refused, BackendUnavailable, OSError, ValueError, KeyError)
        self.folder = folder
        self.lock = threading.RLock()
        self._work = threading.Event()
        self._is_closed = False
        self._wanted: dict[str, Group] = {}
        self._is_whole = False
        self._cordons: dict[str, bool] = {}
        self._shown: dict[str, tuple[ListedNode, ListedNode]] = {}
        self._epoch = 0
        self._taken: Mapping[str, Mapping[str, int]] = {}
        self._taken_before: Mapping[str, Mapping[str, int]] = {}
        self._problems: dict[str, tuple[str, float]] = {}  # of nodes, until when
        self._refusals: dict[str, tuple[str, float]] = {}  # of groups, until when
        self.allocations: dict[str, A] = {}  # by the name of their folder
        self.delays: dict[str, str] = {}  # group -> what the cluster says of its wait
        self.has_listed = False
        self.problem = problem

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is wrong with the cluster as a whole."""
        raise NotImplementedError

    # --- for the link -----------------------------------------------------------------------------------------------

    def want(self, groups: Iterable[Group], epoch: int, *, is_whole: bool, cordons: Mapping[str, bool]) -> None:
        """Set the groups that are to be held, and the cordons of nodes that are to change.

        Allocations of an earlier service go once `is_whole` is set.
        """
        wanted, changes = {group.name: group for group in groups}, dict(cordons)
        with self.lock:
            is_new = (wanted, is_whole, changes) != (self._wanted, self._is_whole, self._cordons)
            self._wanted, self._is_whole, self._cordons = wanted, is_whole, changes
            self._epoch = max(epoch, self._epoch)
        if is_new:
            self._work.set()

    def nodes(self) -> tuple[ListedNode, ...]:
        """Return the nodes that are there, each with its problem and what others use of it."""
        now_s = time.monotonic()
        with self.lock:
            problems = {node: text for node, (text, until_s) in self._problems.items() if until_s > now_s}
            there = [
                node for node, is_silent in self._listed() if not (is_silent and self._has_silent_agent(node.node_id))
            ]
            parts = {
                node.node_id: (node, node.problem or problems.get(node.node_id, ""), self._taken.get(node.node_id, {}))
                for node in there
            }
            self._shown = {name: self._as_shown(name, *part) for name, part in parts.items()}
        return tuple(shown for _, shown in self._shown.values())

    def _as_shown(
        self, name: str, node: ListedNode, problem: str, taken: Mapping[str, int]
    ) -> tuple[ListedNode, ListedNode]:
        """Return the node as listed, and with its problem and what others use; the same object while it is so."""
        listed, shown = self._shown.get(name, (None, node))
        if listed is node and shown.problem == problem and shown.taken == taken:
            return node, shown
        return node, replace(node, problem=problem, taken=taken)

    def is_overtaken(self) -> bool:
        """Return True once a later service commands the agents: this one may decide nothing any more."""
        return read_epoch(self.folder) > self._epoch > 0

    def close(self) -> None:
        """End the thread; allocations stay."""
        self._is_closed = True
        self._work.set()

    def serving(self, group: str) -> A | None:
        """Return the allocation in which the gangs of this group run, or will."""
        with self.lock:
            own = [each for each in self.allocations.values() if each.serves(group)]
        return min(own, key=lambda each: (bool(each.gone), each.leaving_s is not None, -each.made_s), default=None)

    # --- what a backend adds ----------------------------------------------------------------------------------------

    def _listed(self) -> Iterable[tuple[ListedNode, bool]]:
        """Return the nodes that are there, each with whether the cluster hears nothing of it."""
        raise NotImplementedError

    def _turn(self) -> None:
        """Look at the cluster and do what is to be done."""
        raise NotImplementedError

    def _give_up_if_late(self, each: A) -> None:
        """Let go of an allocation that did not bring all its agents in time."""
        raise NotImplementedError

    def _end(self, leaving: list[A]) -> None:
        """Have the cluster end what these allocations still have in it, as far as it is time."""
        raise NotImplementedError

    def _submit(self, group: Group, epoch: int) -> None:
        """Have the cluster make an allocation for the group."""
        raise NotImplementedError

    def _reason(self, each: A) -> str:
        """Return what the cluster says of an allocation that is not ready; "" if nothing."""
        raise NotImplementedError

    # --- this thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until it is closed; what fails is tried again."""
        while not self._is_closed:
            self._work.clear()
            try:
                self._turn()
                self.problem = ""
            except self._expected as problem:
                self.problem = f"{problem}"
            except Exception as problem:  # the thread goes on, and the operator is told
                log.warning("control", exc_info=True)
                self.problem = f"{type(problem).__name__}: {problem}"
            self._work.wait(LOOK_EVERY_S)

    def _has_silent_agent(self, node: str) -> bool:
        """Return True if an agent of ours there gives no sign of life: what the cluster cannot reach is then lost."""
        here = [each.seats[node] for each in self.allocations.values() if node in each.seats and not each.gone]
        return any(seat.is_late for seat in here if seat.reply is not None)

    def _adopt(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            adopted = self._kind.read(folder) if folder.name not in self.allocations else None
            if adopted is not None:
                with self.lock:
                    self.allocations[folder.name] = adopted

    def _take_others(self, taken: Mapping[str, Mapping[str, int]]) -> None:
        """Take what others use: as little as two looks in a row say, since ours come and go between calls."""
        before, self._taken_before = self._taken_before, taken
        with self.lock:
            self._taken = {
                name: {each: min(units, before.get(name, {}).get(each, 0)) for each, units in own.items()}
                for name, own in taken.items()
            }

    def _tidy(self) -> None:
        """1 let go what is not wanted, 2 give up what does not start, 3 forget what is gone."""
        with self.lock:
            wanted, is_whole = dict(self._wanted), self._is_whole
            used = {id(each) for name in wanted if (each := self.serving(name)) is not None}
            for each in self.allocations.values():
                if id(each) in used and each.leaving_s is None:
                    self._give_up_if_late(each)
                elif is_whole and each.leaving_s is None:
                    each.leave()
            leaving = [each for each in self.allocations.values() if each.leaving_s is not None]
        self._end(leaving)
        with self.lock:
            for name in [name for name, each in self.allocations.items() if each.is_over]:
                self.allocations.pop(name).remove()

    def _give_up(self, each: A, why: str) -> None:
        """Let go of an allocation; its nodes are not tried again for a while."""
        self._refuse(each.name, why, each.places)
        each.leave()

    def _refuse(self, group: str, why: str, nodes: Iterable[str] = ()) -> None:
        with self.lock:
            self._problems |= dict.fromkeys(nodes, (why[:300], time.monotonic() + RETRY_S))
            self._refusals[group] = (why[:300], time.monotonic() + RETRY_S)

    def _reserve(self) -> None:
        """Make an allocation for each wanted group that has none."""
        with self.lock:
            wanted, epoch = dict(self._wanted), self._epoch
        now_s = time.monotonic()
        self._refusals = {name: each for name, each in self._refusals.items() if name in wanted and each[1] > now_s}
        for name, group in wanted.items():
            serving = self.serving(name)
            if (serving is None or serving.leaving_s is not None) and name not in self._refusals:
                self._submit(group, epoch)
        waiting = {name: each for name in wanted if (each := self.serving(name)) is not None and not each.is_ready}
        reasons = {name: self._reason(each) for name, each in waiting.items()}
        with self.lock:
            self.delays = {name: text for name, text in reasons.items() if text}
            self.delays |= {name: text for name, (text, _) in self._refusals.items()}
