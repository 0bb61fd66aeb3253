"""One gang's allocation: its folder, its agents' files, and its pods."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gavel.backends.kubernetes.pod_warnings import ASK_AFTER_S, ASK_AGAIN_S
from gavel.backends.kubernetes.pods import Pod
from gavel.backends.nodes.allocation import Allocation

UNSEEN_S = 10.0  # seconds that the watch may take to show a pod that was created
OPEN_AGAIN_S = 2.0  # seconds until a gate that is still shown is removed again


@dataclass(slots=True, kw_only=True)
class PodAllocation(Allocation):
    """The pods of a gang, one on each of its nodes.

    `pods` has all that the API server has shown; `created` those that were created, which it may not have shown yet.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    bound_s: float | None = None  # monotonic, since when all are bound
    deleted: set[str] = field(default_factory=set)
    opened: dict[str, float] = field(default_factory=dict)  # by pod, when its gate was removed (monotonic)
    warnings: dict[str, str] = field(default_factory=dict)  # by pod, as of when it was asked about
    asked: dict[str, float] = field(default_factory=dict)  # by pod, when that was (monotonic)

    @property
    def is_held(self) -> bool:
        """Return True if a pod holds something of a node."""
        return any(pod.is_bound for pod in self.pods.values())

    @property
    def is_preempted(self) -> bool:
        """Return True if pods of a higher priority needed its place."""
        return "Preempt" in self.gone

    @property
    def is_over(self) -> bool:
        """Return True once it is unwanted and none of its pods is left."""
        return self.leaving_s is not None and not self.pods and not self.unseen

    @property
    def is_bound(self) -> bool:
        """Return True once every pod is bound."""
        return len(self.pods) == len(self.seats) and all(pod.node for pod in self.pods.values())

    @property
    def gated(self) -> list[str]:
        """Return the pods whose gate is to be removed now: none before all pods are there."""
        is_whole = len(self.pods) == len(self.seats) and not any(pod.is_leaving for pod in self.pods.values())
        now_s = time.monotonic()
        held = [name for name, pod in self.pods.items() if pod.is_gated] if is_whole and not self.gone else []
        return [name for name in held if now_s - self.opened.get(name, -OPEN_AGAIN_S) >= OPEN_AGAIN_S]

    @property
    def slow(self) -> list[str]:
        """Return the pods that are bound, do not start, and were not asked about lately."""
        now_s = time.monotonic()
        if self.gone or self.leaving_s is not None or self.bound_s is None or now_s - self.bound_s < ASK_AFTER_S:
            return []
        starting = [name for name, pod in self.pods.items() if pod.phase == "Pending" and not pod.problem]
        return [name for name in starting if now_s - self.asked.get(name, -ASK_AGAIN_S) >= ASK_AGAIN_S]

    @property
    def unseen(self) -> set[str]:
        """Return the names of created pods that the API server has to show still."""
        is_new = time.monotonic() - self.made_s < UNSEEN_S
        return self.created - self.deleted if is_new else set()

    @property
    def waits_for(self) -> str:
        """Return what Kubernetes says of a pod that waits; "" if nothing."""
        return next((text for pod in self.pods.values() if (text := self._why_waits(pod))), "")

    def _why_waits(self, pod: Pod) -> str:
        warning = self.warnings.get(pod.name, "") if pod.phase == "Pending" else ""
        return warning or pod.waits_for

    @property
    def refused(self) -> str:
        """Return why a pod's container can never start; "" if it can, as far as is known."""
        return next((pod.problem for pod in self.pods.values() if pod.problem), "")

    def address_on(self, node: str) -> str:
        """Return the address of the pod there, which other pods reach."""
        return next((pod.address for pod in self.pods.values() if pod.node == node), "")

    def take(self, pods: Mapping[str, Pod]) -> None:
        """Take the pods that are there now: `pods` are those of this allocation, by name."""
        lost = [pod for name, pod in self.pods.items() if name not in pods]
        self.pods = dict(pods)
        self.created -= pods.keys()
        if self.bound_s is None and self.is_bound:
            self.bound_s = time.monotonic()
        ended = [pod for pod in pods.values() if pod.has_ended]
        if self.gone or not (ended or lost or self._lacks_pods()):
            return
        if ended:
            self.gone = f"Kubernetes ended pod {ended[0].name}: {ended[0].end or ended[0].phase}"
        else:
            self.gone = f"its pod {lost[0].name if lost else ''} was deleted in Kubernetes".replace("  ", " ")

    def _lacks_pods(self) -> bool:
        """Return True if a pod is not there, which should have been shown by now."""
        return len(self.pods) < len(self.seats) and not self.unseen and time.monotonic() - self.made_s > UNSEEN_S
