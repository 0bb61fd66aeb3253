"""Random histories of a resource table against a model that recounts everything from scratch."""

import os
from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gavel.ephemeral import Availability, GangRequest, Member, ResourceTable, match
from gavel.errors import NotFound, StaleVersion
from gavel.types import EphemeralResource

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
NODES = ("a", "b", "c")
NAMES = ("p", "q")
nodes, names, amounts = st.sampled_from(NODES), st.sampled_from(NAMES), st.integers(0, 4)
requirements = st.dictionaries(st.sampled_from(("node/cpu", "app/p", "app/q")), st.integers(1, 2), min_size=1)
thresholds = st.dictionaries(st.sampled_from(("node/cpu", "app/p", "app/q")), st.integers(1, 4), max_size=1)
members = st.builds(Member, requirements, st.none() | nodes, thresholds)


@dataclass
class Word:
    """What the model remembers of a name on a node."""

    capacity: int
    lease_s: float
    generation: int
    fence_s: float


def after(current: Word | None, new: EphemeralResource) -> Word:
    if current is None:
        return Word(new.capacity, new.lease_expires_at_s, new.generation, new.lease_expires_at_s)
    fence_s = max(current.fence_s, new.lease_expires_at_s)
    if new.generation > current.generation:
        return Word(new.capacity, new.lease_expires_at_s, new.generation, fence_s)
    if (new.generation, new.capacity) == (current.generation, current.capacity):
        return Word(current.capacity, max(current.lease_s, new.lease_expires_at_s), current.generation, fence_s)
    raise StaleVersion("older")


class ResourceHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.table = ResourceTable()
        self.cpus: dict[str, int] = {}
        self.words: dict[tuple[str, str], Word] = {}
        self.pending: list[GangRequest] = []
        self.held: dict[tuple[str, int], list[tuple[str, dict[str, int]]]] = {}
        self.jobs = 0

    def capacity(self, full: str, node: str) -> int:
        if full == "node/cpu":
            return self.cpus.get(node, 0)
        word = self.words.get((full.removeprefix("app/"), node))
        return word.capacity if word and word.lease_s > self.now_s else 0

    def word(self, key: tuple[str, str]) -> Word | None:
        word = self.words.get(key)
        return word if word and word.fence_s > self.now_s else None

    def used(self) -> Counter[tuple[str, str]]:
        used: Counter[tuple[str, str]] = Counter()
        for placements in self.held.values():
            for node, requires in placements:
                used.update({(full, node): amount for full, amount in requires.items()})
        return used

    @rule(node=nodes, cpu=amounts)
    def add_a_node(self, node: str, cpu: int) -> None:
        self.table.add_node(node, {"cpu": cpu})
        self.cpus[node] = cpu

    @rule(node=nodes)
    def lose_a_node(self, node: str) -> None:
        self.table.remove_node(node)
        self.cpus.pop(node, None)
        self.words = {key: word for key, word in self.words.items() if key[1] != node}
        for gang, placements in self.held.items():
            self.held[gang] = [each for each in placements if each[0] != node]

    @rule(name=names, node=nodes, capacity=amounts, ttl_s=st.integers(1, 9))
    def set_one(self, name: str, node: str, capacity: int, ttl_s: int) -> None:
        before = self.word((name, node))
        try:
            (written,) = self.table.set_resource(name, capacity, node, ttl_s, "app", self.now_s)
        except NotFound:
            assert node not in self.cpus
            return
        self.words[name, node] = after(before, written)
        assert self.words[name, node].capacity == capacity

    @rule(
        batch=st.lists(st.tuples(names, nodes, amounts, st.integers(-1, 9), st.integers(1, 4)), min_size=1, max_size=4)
    )
    def set_a_batch(self, batch: list[tuple[str, str, int, int, int]]) -> None:
        resources = [
            EphemeralResource(
                name=name, node=node, capacity=c, owner="app", lease_expires_at_s=self.now_s + s, generation=g
            )
            for name, node, c, s, g in batch
        ]
        words, is_good = self.after_batch(resources)
        try:
            self.table.set_resources(resources, now_s=self.now_s)
            assert is_good, "a batch with a stale or misplaced write was taken"
        except (StaleVersion, NotFound):
            assert not is_good, "a good batch was refused"
        else:
            self.words |= words
            for key in words:
                if self.word(key) is None:
                    del self.words[key]

    def after_batch(self, resources: list[EphemeralResource]) -> tuple[dict[tuple[str, str], Word], bool]:
        words: dict[tuple[str, str], Word] = {}
        for new in resources:
            key = (new.name, new.node)
            try:
                words[key] = after(words.get(key) or self.word(key), new)
            except StaleVersion:
                return {}, False
        return words, all(new.node in self.cpus for new in resources)

    @rule(gang=st.lists(members, min_size=1, max_size=4))
    def ask(self, gang: list[Member]) -> None:
        self.jobs += 1
        self.pending.append(GangRequest((f"j{self.jobs}", 1), tuple(gang)))

    @rule()
    def match_the_pending(self) -> None:
        used = self.used()
        matches = {each.gang: each.nodes for each in match(self.table, self.pending, self.now_s)}
        for request in [each for each in self.pending if each.gang in matches]:
            where = matches[request.gang]
            assert len(where) == len(request.members)
            self.held[request.gang] = []
            for node, member in zip(where, request.members, strict=True):
                assert member.node in (None, node)
                for full, amount in member.at_least.items():
                    assert self.capacity(full, node) - used[full, node] >= amount, "below its threshold"
                self.held[request.gang].append((node, dict(member.requires)))
        for (full, node), amount in self.used().items():
            if amount > used[full, node]:
                assert amount <= self.capacity(full, node), f"{full} on {node} was admitted past its capacity"
        self.pending = [each for each in self.pending if each.gang not in matches]
        for request in self.pending:
            if len(request.members) == 1:
                assert self.table.missing(request, self.now_s), f"{request} fits, yet it waits"

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.held:
            gang = data.draw(st.sampled_from(sorted(self.held)))
            self.table.release(gang)
            del self.held[gang]

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds

    @rule()
    def collect(self) -> None:
        over = {
            f"app/{name}" for (name, _), word in self.words.items() if word.fence_s <= self.now_s and word.capacity > 0
        }
        assert self.table.expire(self.now_s) == tuple(sorted(over))
        self.words = {key: word for key, word in self.words.items() if word.fence_s > self.now_s}

    @invariant()
    def availability_is_capacity_less_what_is_held(self) -> None:
        state, used = self.table.get_cluster_state(self.now_s), self.used()
        assert set(state) == set(self.cpus)
        for node, shown in state.items():
            for full in ("node/cpu", "app/p", "app/q"):
                capacity = self.capacity(full, node)
                expected = Availability(capacity, capacity - used[full, node])
                assert shown.get(full, Availability(0, 0)) == expected

    @invariant()
    def what_is_held_is_held(self) -> None:
        assert all(self.table.holds(gang) for gang in self.held)
        assert not any(self.table.holds(request.gang) for request in self.pending)


ResourceHistory.TestCase.settings = settings(max_examples=1000 if FULL else 60, stateful_step_count=40)
TestResourceHistory = ResourceHistory.TestCase
