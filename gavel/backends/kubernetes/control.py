"""The thread that keeps the pods that are wanted, and the extended resources of gangs on their nodes."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from gavel.backends.kubernetes.allocation import PodAllocation
from gavel.backends.kubernetes.api import Api, Object, Refused
from gavel.backends.kubernetes.cordons import Cordoning, set_cordon
from gavel.backends.kubernetes.gates import Holding, make_pod_group, open_gate, served
from gavel.backends.kubernetes.nodes import Node, node_of, taken_of
from gavel.backends.kubernetes.pod_warnings import PODS_AT_ONCE, warning_of
from gavel.backends.kubernetes.pods import Pod, gang_name, pod_of, pods_for
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.kubernetes.resources import apply_set, names_of_gang, wanted_on_nodes
from gavel.backends.kubernetes.rights import OF_EVENTS, OF_GANGS, Rights
from gavel.backends.kubernetes.watching import Watched
from gavel.backends.nodes.allocation_control import AllocationControl
from gavel.backends.nodes.protocol import Group, ListedNode
from gavel.backends.nodes.relay import agent_start
from gavel.errors import BackendUnavailable, InvalidResource

LEAVE_S = 3.0  # seconds that agents have to free their nodes before their pods are deleted
CALLS_AT_ONCE = 8
APPLY_AGAIN_S = 2.0  # seconds until a set that a node does not show is applied again
SERVED_EVERY_S = 600.0  # how often it is asked what the API server knows, since clusters are upgraded
HINTS = {
    "exceeded quota": "; raise the quota of the namespace, or set another namespace in the section kubernetes",
    "forbidden: pod rejected": "; see the admission policies of the cluster",
}


class Control(AllocationControl[PodAllocation]):
    """Creates and deletes pods, and applies extended resources. What it knows is read by the link."""

    def __init__(self, settings: KubernetesSettings, calls: Counter[str]) -> None:
        folder = Path(settings.folder).expanduser().resolve()
        super().__init__(folder, PodAllocation, "Kubernetes", "asking Kubernetes for its nodes", refused=(Refused,))
        self._settings = settings
        self._api = Api(settings.kubeconfig, settings.context, calls)
        self._watched_nodes = Watched[Node](
            self._api, "/api/v1/nodes", lambda shown: node_of(shown, settings), self._work.set
        )
        self._watched_pods = Watched[Pod](self._api, "/api/v1/pods", pod_of, self._work.set)
        self._nodes: Mapping[str, Node] = {}
        self._seen = (-1, -1)
        self._counted: tuple[int, frozenset[str]] = (-1, frozenset())
        self._held_by_others: Mapping[str, Mapping[str, int]] = {}
        self._named: frozenset[str] = frozenset()  # groups whose names have been applied
        self._applied: dict[str, tuple[dict[str, str], float]] = {}  # by node: what, and when (monotonic)
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="gavel-kubernetes")
        self._pods_path = f"/api/v1/namespaces/{quote(settings.namespace, safe='')}/pods"
        self._rights = Rights(self._api, (*OF_GANGS, OF_EVENTS), settings.namespace)
        self._served, self._served_at_s = Holding(), -math.inf
        self._lacks_accelerators, self._apply_note, self._cordon_note = "", "", ""
        self._cordoning = Cordoning()

    def run(self) -> None:
        """Serve until it is closed; what fails is tried again."""
        self._watched_nodes.start()
        self._watched_pods.start()
        super().run()
        self._watched_nodes.close()
        self._watched_pods.close()
        self._pool.shutdown(wait=False)

    def _listed(self) -> Iterable[tuple[ListedNode, bool]]:
        return [(node.listed, node.is_silent) for node in self._nodes.values()]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is wrong with the cluster as a whole."""
        return tuple(
            filter(None, (self._lacks_accelerators, self._apply_note, self._cordon_note, *self._rights.missing))
        )

    # --- looking ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._ask_server()
        problem = self._watched_nodes.problem or self._watched_pods.problem
        if not (self._watched_nodes.has_listed and self._watched_pods.has_listed):
            raise BackendUnavailable(problem or self.problem)
        self._look()
        self.has_listed = True
        if self.is_overtaken():
            return
        if problem:
            raise BackendUnavailable(problem)
        self._tidy()
        self._apply()
        self._cordon()
        self._reserve()
        self._open()
        self._ask_why()

    def _ask_server(self) -> None:
        """Ask now and then what the API server knows, and which rights the service lacks for that."""
        if time.monotonic() - self._served_at_s >= SERVED_EVERY_S:
            self._served = served(self._api)
            self._served_at_s = time.monotonic()
            self._rights.need((*OF_GANGS, OF_EVENTS, *self._served.rights))
        self._rights.look()

    def _look(self) -> None:
        """Take what the watches have brought since the last look."""
        if not self.has_listed:
            self._adopt(self.folder.glob("allocations/*"))
        seen = (self._watched_nodes.count, self._watched_pods.count)
        if seen != self._seen:
            pods = self._watched_pods.objects()
            with self.lock:
                self._nodes = self._watched_nodes.objects()
                self._of_ours(pods.values())
            has_any = any(node.listed.slots for node in self._nodes.values())
            self._lacks_accelerators = "" if has_any else self._how_to_get_accelerators()
            self._seen = seen
        with self.lock:
            for each in self.allocations.values():
                each.take(each.pods)
        self._count_others()

    def _of_ours(self, pods: Iterable[Pod]) -> None:
        by_allocation: dict[str, dict[str, Pod]] = {}
        for pod in pods:
            if pod.allocation and pod.namespace == self._settings.namespace:
                by_allocation.setdefault(pod.allocation, {})[pod.name] = pod
        for name, each in self.allocations.items():
            each.take(by_allocation.get(name, {}))

    def _how_to_get_accelerators(self) -> str:
        names = ", ".join(self._settings.resources[:3])
        lacking = f"no node of Kubernetes has an accelerator ({names} ..)"
        return f"{lacking}: install the vendor's device plugin, or set resources of the section kubernetes"

    def _count_others(self) -> None:
        """Work out what pods hold that are none of ours, anew only if something has changed."""
        state = (self._watched_pods.count, frozenset(self.allocations))
        if state != self._counted:
            foreign = [pod for pod in self._watched_pods.objects().values() if not self._is_ours(pod)]
            self._counted, self._held_by_others = state, taken_of(foreign, self._settings.resources)
        self._take_others(self._held_by_others)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.allocation in self.allocations and pod.namespace == self._settings.namespace

    # --- extended resources -----------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Apply the full set of each node whose set is not what is wanted, all at once.

        A node that is made again comes back empty, and a kubelet may set amounts to zero: then it is applied again.
        """
        with self.lock:
            wanted, is_whole = wanted_on_nodes(self._wanted.values(), self._settings.domain), self._is_whole
            named = frozenset(self._wanted)
        now_s, due = time.monotonic(), dict[str, dict[str, str]]()
        for name, node in self._nodes.items():
            own = wanted.get(name, {}) if is_whole else {**node.own, **wanted.get(name, {})}
            before, at_s = self._applied.get(name, ({}, 0.0))
            if own != dict(node.own) and (own != before or now_s - at_s > APPLY_AGAIN_S):
                due[name] = own
        for name, own in due.items():
            self._applied[name] = (own, now_s)
        self._apply_note = ""
        for problem in self._all(lambda name: apply_set(self._api, name, due[name], self._settings.manager), due):
            self._apply_note = f"Kubernetes refuses extended resources on a node: {problem}"
        self._applied = {name: each for name, each in self._applied.items() if name in self._nodes}
        self._named = named

    def _cordon(self) -> None:
        """Cordon the nodes that an operator of Gavel has closed, and let the others go; each again until it is seen."""
        with self.lock:
            asked = {name: each for name, each in self._cordons.items() if name in self._nodes}
        closed = {name for name in asked if self._nodes[name].is_closed}
        due = self._cordoning.due(asked, closed)

        def call(name: str) -> object:
            return set_cordon(self._api, name, self._settings, is_cordoned=due[name])

        refused = self._all(call, due)
        if due or not asked:
            self._cordon_note = f"Kubernetes refuses the cordon of a node: {refused[0]}" if refused else ""

    def _all(self, call: Callable[[str], object], names: Iterable[str]) -> list[Exception]:
        """Do the calls, several at a time; return what was refused. Raises BackendUnavailable once all are done."""
        refused: list[Exception] = []
        unavailable: list[BackendUnavailable] = []
        for done in [self._pool.submit(call, name) for name in names]:
            problem = done.exception()
            if isinstance(problem, Refused | InvalidResource):
                refused.append(problem)
            elif isinstance(problem, BackendUnavailable):
                unavailable.append(problem)
            elif problem is not None:
                raise problem
        if unavailable:
            raise unavailable[0]
        return refused

    # --- pods -------------------------------------------------------------------------------------------------------

    def _submit(self, group: Group, epoch: int) -> None:
        if any(node not in self._nodes for node, _, _ in group.bundles):
            return  # the node has gone
        if group.name not in self._named:
            return  # wanted since: a pod that comes before its name is tried again by the scheduler only after a second
        made = PodAllocation.make(self.folder / "allocations", group, epoch)
        start = agent_start(made.folder, self._settings.orders_url, self._settings.certificates)
        bare = pods_for(group, start, names_of_gang(group, self._settings.domain), self._settings)
        held = self._holding.held(bare, gang_name(made.folder.name))
        pods = {str(pod["metadata"]["name"]): pod for pod in held}
        made.created = set(pods)
        with self.lock:
            self.allocations[made.folder.name] = made
        self._create(made, pods)

    def _create(self, made: PodAllocation, pods: Mapping[str, Object]) -> None:
        """Create all the pods of a gang; if one is refused, none stays."""
        try:
            refused = self._all(lambda name: self._api.create(self._pods_path, pods[name]), pods)
        except BackendUnavailable:
            made.leave()
            raise
        if refused:
            text = str(refused[0])
            hint = next((hint for words, hint in HINTS.items() if words in text), "")
            self._refuse(made.name, f"Kubernetes refuses a pod: {text}{hint}")
            made.leave()

    @property
    def _holding(self) -> Holding:
        """Return by what new pods are held back."""
        return self._served.without(self._rights.lacking)

    def _open(self) -> None:
        """Let the scheduler see the pods of each gang that is whole: all are there, and its name is on its nodes."""
        with self.lock:
            wanted = dict(self._wanted)
        for name, group in wanted.items():
            each = self.serving(name)
            if each is not None and each.name == name and each.leaving_s is None and self._stands(group):
                self._open_gang(each)

    def _stands(self, group: Group) -> bool:
        """Return True if each node of the gang is seen to have the gang's name."""
        names = names_of_gang(group, self._settings.domain)
        own = {node: self._nodes[node].own for node in names.keys() & self._nodes.keys()}
        return all(own.get(node, {}).get(name, "0") != "0" for node, name in names.items())

    def _open_gang(self, each: PodAllocation) -> None:
        due = each.gated
        if not due:
            return
        pods, group = [*each.pods.values()], gang_name(each.folder.name)
        try:
            for kind in self._holding.kinds:
                make_pod_group(self._api, kind, group, pods)
            refused = self._all(lambda name: open_gate(self._api, f"{self._pods_path}/{name}"), due)
        except Refused as problem:
            refused = [problem]
        each.opened |= dict.fromkeys(due, time.monotonic())
        if refused:
            self._rights.ask_again()
            self._refuse(each.name, f"Kubernetes refuses to let a gang be scheduled: {refused[0]}")
            each.leave()

    def _ask_why(self) -> None:
        """Ask for the warnings of pods that are bound and do not start, a few at a time."""
        slow = [(pod, each) for each in self.allocations.values() for pod in each.slow]
        of_pod = dict(slow[:PODS_AT_ONCE])
        for pod, each in of_pod.items():
            each.asked[pod] = time.monotonic()

        def ask(pod: str) -> None:
            of_pod[pod].warnings[pod] = warning_of(self._api, self._settings.namespace, pod)

        self._all(ask, of_pod)  # whoever may not ask is told by its missing right

    def _give_up_if_late(self, each: PodAllocation) -> None:
        """Let go of pods that are not all bound, or whose agents have not all spoken, in time."""
        now_s, settings = time.monotonic(), self._settings
        failed = each.problem or each.gone
        if not failed and each.refused and not each.is_ready:
            self._refuse(each.name, f"a pod cannot start: {each.refused}")
            each.leave()
            return
        if not failed and not each.is_bound and now_s - each.made_s > settings.bind_limit_s:
            why = each.waits_for or "no answer"
            failed = f"its pods were not bound within {settings.bind_limit_s:g} s (Kubernetes: {why})"
        elif not failed and each.bound_s is not None and not each.is_ready:
            is_late = now_s - each.bound_s > settings.start_limit_s
            failed = f"a pod did not start within {settings.start_limit_s:g} s: {each.waits_for}" if is_late else ""
        if failed and not each.has_launched:
            self._give_up(each, failed)

    def _reason(self, each: PodAllocation) -> str:
        return f"Kubernetes says {each.waits_for}" if each.waits_for else ""

    def _end(self, leaving: list[PodAllocation]) -> None:
        """Delete pods that have not started, have ended, or do not end by themselves."""
        graces: dict[str, int | None] = {}
        for each in leaving:
            assert each.leaving_s is not None, "only an allocation that leaves is ended"
            is_late = time.monotonic() - each.leaving_s > LEAVE_S
            for name, pod in [*each.pods.items()]:
                is_lost = is_late and self._is_lost(pod.node)
                if name in each.deleted and not is_lost:
                    continue
                if is_late or not pod.node or pod.has_ended or not each.is_ready:
                    graces[name] = 0 if is_lost or not pod.node else None
                    each.deleted.add(name)
            if is_late and each.unseen:
                graces |= dict.fromkeys(each.unseen)
                each.deleted |= each.unseen
        self._all(lambda name: self._api.delete(f"{self._pods_path}/{name}", grace_s=graces[name]), graces)

    def _is_lost(self, node: str) -> bool:
        """Return True if nobody there can say that a pod has ended."""
        return bool(node) and (node not in self._nodes or self._nodes[node].is_silent)
