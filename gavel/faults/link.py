"""A service's link to the nodes, in place of the process that speaks with Ray: one call to a node at a time."""

from collections.abc import Callable

from gavel.backends.nodes.protocol import Answer, Order, Seen, Wanted
from gavel.faults.network import Network
from gavel.faults.node import SimulatedNode
from gavel.faults.schedule import Schedule

LATE_S = 2.0  # seconds without an answer, after which a node is not waited for


class SimulatedLink:
    """Implements NodeLink. `on_node` runs a call with the clock of its node; `strikes` may end the process there."""

    def __init__(
        self,
        network: Network,
        schedule: Schedule,
        on_node: Callable[[SimulatedNode, Order], Answer],
        strikes: Callable[[bool], None],
    ) -> None:
        self._network, self._schedule = network, schedule
        self._on_node, self._strikes = on_node, strikes
        self._unanswered: dict[str, float] = {}  # id of a node -> since when
        self._answers: dict[str, Answer] = {}
        self._nodes = network.listed()
        self._is_closed = False
        self.down_until_s = 0.0

    def exchange(self, wanted: Wanted) -> Seen:
        """Send the orders; return the answers that have come."""
        problem = self._problem()
        if problem:
            self._unanswered.clear()
            self._answers.clear()
            return Seen(nodes=self._nodes, problem=problem)
        if wanted.orders:
            self._strikes(False)
        ready = self._network.reserve(wanted.groups, is_whole=wanted.is_whole)
        for node_id, order in sorted(wanted.orders.items()):  # their order is that of a set
            node = self._network.node(node_id)
            if node is not None and node_id not in self._unanswered:
                self._send(node, node_id, order)
        if wanted.orders:
            self._strikes(True)
        self._nodes = nodes = self._network.listed(self._late())
        listed = {node.node_id for node in nodes}
        for gone in self._unanswered.keys() - listed:  # the call fails when the node is given up
            del self._unanswered[gone]
        answers, self._answers = self._answers, {}
        return Seen(
            nodes=nodes,
            ready=ready,
            answers={node_id: answer for node_id, answer in answers.items() if node_id in listed},
            is_connected=True,
        )

    def close(self) -> None:
        """Take no more answers; orders that are under way still arrive."""
        self._is_closed = True

    def _problem(self) -> str:
        if self._schedule.now_s < self.down_until_s:
            return "the process that speaks with Ray hung"
        return "the control service does not answer" if self._network.is_silent else ""

    def _late(self) -> set[str]:
        now_s = self._schedule.now_s
        return {
            node_id.rpartition("-")[0] for node_id, since_s in self._unanswered.items() if now_s - since_s >= LATE_S
        }

    def _send(self, node: SimulatedNode, node_id: str, order: Order) -> None:
        self._unanswered[node_id] = self._schedule.now_s
        again_s = self._network.comes_again_after_s(node)
        if again_s is not None:
            self._schedule.after(again_s, lambda: self._deliver(node, node_id, order, is_answered=False))
        delay_s = self._network.delay_s(node)
        if delay_s > 0.0 or node.cut_since_s is not None:
            self._schedule.after(delay_s, lambda: self._deliver(node, node_id, order))
        else:
            self._deliver(node, node_id, order)

    def _deliver(self, node: SimulatedNode, node_id: str, order: Order, *, is_answered: bool = True) -> None:
        if node.node_id != node_id or not node.is_up:
            return
        if node.cut_since_s is not None:  # it arrives once the network is there again, unless the node is given up
            self._schedule.after(1.0, lambda: self._deliver(node, node_id, order, is_answered=is_answered))
            return
        answer = self._on_node(node, order)
        if not is_answered:
            return
        delay_s = self._network.delay_s(node)
        if delay_s > 0.0:
            self._schedule.after(delay_s, lambda: self._arrives(node_id, answer))
        else:
            self._arrives(node_id, answer)

    def _arrives(self, node_id: str, answer: Answer) -> None:
        if not self._is_closed and self._unanswered.pop(node_id, None) is not None:
            self._answers[node_id] = answer
