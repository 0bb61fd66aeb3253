"""The code of a job on a node, without Ray: the agent asks for what it lacks, and is given packs."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import machine
from gavel.backends.code_copy import chunk_path
from gavel.backends.code_store import CodeStore
from gavel.backends.nodes import code_fetch
from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.code_fetch import CodeFetches
from gavel.backends.nodes.code_packs import KEPT, NEW_PER_CALL, CodePacks
from gavel.backends.nodes.housekeeping import clear
from gavel.backends.nodes.protocol import PROTOCOL, Answer, CodeAsked, CodeGiven, Order, ShardLaunch, ShardSeen
from gavel.code_tree import CHUNK_BYTES
from gavel.types import GangOutcome
from tests.backends.clusters import eventually
from tests.backends.code import stored
from tests.backends.ray.test_agent import a_launch, is_ended, wanted

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
LIMIT_BYTES = 1 << 30
CODE = {"train.py": b"print(1)", "lib/a.py": b"a = 1", "data": b"x" * CHUNK_BYTES + b"y"}


@dataclass
class Held:
    """A pack in memory."""

    body: bytes

    def read(self, limit_s: float) -> bytes:
        return self.body


class Gone:
    """A pack of a bridge that has died."""

    def read(self, limit_s: float) -> bytes:
        raise ConnectionError("its owner is gone")


class Cluster:
    """A service's store, and a node that speaks with it as through the bridge."""

    def __init__(self, folder: Path) -> None:
        self.store = CodeStore(folder / "state", limit_bytes=LIMIT_BYTES, kept_s=3600)
        self.packs = CodePacks(str(folder / "state/code"), Held)
        self.folder = folder
        self.agent = NodeAgent("n1", str(folder), PROTOCOL)
        self.asked: tuple[CodeAsked, ...] = ()
        self.given: list[CodeGiven] = []

    def tell(self, launch: ShardLaunch, lasts_s: float = 60.0, **over: object) -> Answer:
        code = self.packs.given(self.asked, [])
        self.given += code
        answer = self.agent.exchange(
            Order(epoch=1, boot_id=machine.boot_id(), shards=(wanted(launch, lasts_s, **over),), code=code)
        )
        self.asked = answer.code
        return answer

    def until(self, launch: ShardLaunch, holds: Callable[[ShardSeen], bool], **over: object) -> ShardSeen:
        seen: list[ShardSeen] = []

        def look() -> bool:
            seen[:] = [each for each in self.tell(launch, **over).shards if each.key == launch.key]  # type: ignore[arg-type]
            return bool(seen) and holds(seen[0])

        eventually(look)
        return seen[0]

    def end_of(self, launch: ShardLaunch) -> ShardSeen:
        return self.until(launch, is_ended)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.agent.close()


def that_runs(cluster: Cluster, digest: str, text: str, job_id: str = "j1", **over: object) -> ShardLaunch:
    """A gang that runs this shell script in its code."""
    launch = a_launch(cluster.folder, job_id)
    own = replace(launch.instruction, argv=("sh", "-c", text), code=digest)
    return replace(launch, instruction=own, **over)  # type: ignore[arg-type]


def test_a_job_runs_in_a_copy_of_its_code_that_its_node_did_not_have(cluster: Cluster) -> None:
    """1 the list of files and the chunks come one after the other, 2 the next job on the node brings nothing."""
    digest = stored(cluster.store, CODE)
    show = "cat train.py lib/a.py && wc -c < data && pwd"
    end = cluster.end_of(that_runs(cluster, digest, show))
    home = cluster.folder / "n1/work/j1/code"
    assert end.log.decode() == f"print(1)a = 1{CHUNK_BYTES + 1}\n{home}\n"
    assert [bool(each.asked.chunks) for each in cluster.given] == [False, True]
    assert cluster.end_of(that_runs(cluster, digest, show, "j2")).log == end.log.replace(b"j1", b"j2")
    assert len(cluster.given) == 2


def test_only_the_chunks_that_changed_are_brought(cluster: Cluster) -> None:
    cluster.end_of(that_runs(cluster, stored(cluster.store, CODE), "true"))
    cluster.given.clear()
    changed = stored(cluster.store, {**CODE, "train.py": b"print(2)"})
    assert cluster.end_of(that_runs(cluster, changed, "cat train.py", "j2")).log == b"print(2)"
    assert [len(each.asked.chunks) for each in cluster.given] == [0, 1]


def test_a_pack_that_is_lost_is_asked_for_again(cluster: Cluster) -> None:
    """The bridge dies, and its packs with it; nothing else is told, and the next bridge gives what lacks."""
    digest = stored(cluster.store, CODE)
    launch, lost = that_runs(cluster, digest, "cat train.py"), []

    def loses_three() -> bool:
        given = tuple(CodeGiven(asked=each, pack=Gone()) for each in cluster.asked)
        lost.extend(given)
        order = Order(epoch=1, boot_id=machine.boot_id(), shards=(wanted(launch),), code=given)
        cluster.asked = cluster.agent.exchange(order).code
        return len(lost) >= 3

    eventually(loses_three)
    assert cluster.end_of(launch).log == b"print(1)"


def test_a_chunk_that_is_damaged_where_it_is_stored_ends_the_job_with_the_reason(cluster: Cluster) -> None:
    digest = stored(cluster.store, CODE)
    chunk = cluster.store.files(digest)[-1].chunks[0]
    Path(chunk_path(str(cluster.folder / "state/code"), chunk)).write_bytes(b"print(9)")
    end = cluster.end_of(that_runs(cluster, digest, "true"))
    assert end.exit is not None and end.exit.outcome is GangOutcome.NOT_STARTED
    assert end.exit.message == (
        f"the service cannot read code version {digest}: {chunk} is damaged in its store; submit the job again,"
        " which stores it anew"
    )
    assert not (cluster.folder / "n1/work/j1/code").exists()


def test_a_chunk_that_arrives_damaged_is_not_kept(cluster: Cluster) -> None:
    digest = stored(cluster.store, CODE)
    cluster.packs = CodePacks(str(cluster.folder / "state/code"), lambda body: Held(body[:-1] + b"?"))
    end = cluster.end_of(that_runs(cluster, digest, "true"))
    assert end.exit is not None and end.exit.outcome is GangOutcome.NOT_STARTED
    assert end.exit.message.startswith(f"code version {digest} arrived damaged: ")
    cluster.packs = CodePacks(str(cluster.folder / "state/code"), Held)
    assert cluster.end_of(that_runs(cluster, digest, "cat train.py", "j2")).log == b"print(1)"


def test_code_that_the_service_does_not_have_ends_the_job_with_the_reason(cluster: Cluster) -> None:
    end = cluster.end_of(that_runs(cluster, "0" * 64, "true"))
    assert end.exit is not None and end.exit.outcome is GangOutcome.NOT_STARTED
    assert f"the service cannot read code version {'0' * 64}: " in end.exit.message


def test_a_disk_that_takes_no_more_loses_the_gang_and_leaves_no_half_copy(cluster: Cluster) -> None:
    """It may start on another node. A file is where the folder of the chunks should be."""
    digest = stored(cluster.store, CODE)
    (cluster.folder / "n1/code").mkdir()
    (cluster.folder / "n1/code/chunks").write_text("in the way")
    end = cluster.end_of(that_runs(cluster, digest, "true"))
    assert end.exit is not None and end.exit.outcome is GangOutcome.LOST
    assert end.exit.message.startswith("cannot start on node n1: ")
    assert not (cluster.folder / "n1/work/j1/code").exists()


def test_a_lease_that_ends_while_code_is_fetched_preempts_and_asks_for_no_more(cluster: Cluster) -> None:
    """And extensions are taken all the while: a node that waits for its code is answered for."""
    launch = that_runs(cluster, stored(cluster.store, CODE), "true")
    cluster.packs = CodePacks(str(cluster.folder / "state/code"), lambda body: Gone())
    short = wanted(launch, 0.3)

    def has_ended() -> bool:
        code = cluster.packs.given(cluster.asked, [])
        answer = cluster.agent.exchange(Order(epoch=1, boot_id=machine.boot_id(), shards=(short,), code=code))
        cluster.asked = answer.code
        return is_ended(answer.shards[0])

    eventually(has_ended)
    (seen,) = cluster.tell(launch).shards
    assert seen.exit is not None and seen.exit.outcome is GangOutcome.PREEMPTED
    assert "while its code or its files were fetched" in seen.exit.message
    eventually(lambda: not cluster.tell(launch).code)


def test_an_agent_that_died_while_code_was_fetched_says_so_and_its_chunks_stay(cluster: Cluster) -> None:
    digest = stored(cluster.store, CODE)
    launch = that_runs(cluster, digest, "true")
    eventually(lambda: bool(cluster.tell(launch).code and cluster.asked[0].chunks))
    cluster.agent.close()
    cluster.agent = NodeAgent("n1", str(cluster.folder), PROTOCOL)
    end = cluster.end_of(launch)
    assert end.exit is not None and end.exit.outcome is GangOutcome.LOST
    assert end.exit.message == "its node's agent died while starting it"
    cluster.given.clear()
    cluster.end_of(that_runs(cluster, digest, "true", "j2"))
    assert all(each.asked.chunks for each in cluster.given), "the list of files is there"


@settings(max_examples=200 if FULL else 8)
@given(data=st.data())
def test_what_is_brought_is_what_is_stored(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In packs of any size, some of which are lost: whole, or not here at all."""
    folder = tmp_path_factory.mktemp("one")
    store = CodeStore(folder / "state", limit_bytes=LIMIT_BYTES, kept_s=3600)
    files = {f"f{index}": os.urandom(data.draw(st.integers(0, 3 * CHUNK_BYTES))) for index in range(3)}
    digest = stored(store, files)
    fetches, packs = CodeFetches(folder / "node"), CodePacks(str(folder / "state/code"), Held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_fetch, "PACK_BYTES", data.draw(st.integers(CHUNK_BYTES, 4 * CHUNK_BYTES)))
        losses = data.draw(st.lists(st.booleans(), max_size=4))

        def is_here() -> bool:
            given = packs.given(fetches.asked([digest]), [])
            if given and losses and losses.pop():
                given = tuple(replace(each, pack=Gone()) for each in given)
            fetches.take(given)
            return fetches.is_here(digest)

        eventually(is_here)
    fetches.close()
    node = CodeStore(folder / "node", limit_bytes=LIMIT_BYTES, kept_s=3600)
    assert (node.missing(digest), node.files(digest)) == ({}, store.files(digest))


def test_an_answer_to_an_earlier_question_is_left_aside(tmp_path: Path) -> None:
    """The list of files comes again, when it is here already: it is not taken for damaged chunks."""
    store = CodeStore(tmp_path / "state", limit_bytes=LIMIT_BYTES, kept_s=3600)
    digest = stored(store, CODE)
    fetches, packs = CodeFetches(tmp_path / "node"), CodePacks(str(tmp_path / "state/code"), Held)
    assert not fetches.is_here(digest)
    files = packs.given(fetches.asked([digest]), [])
    fetches.take(files)
    eventually(lambda: not fetches.is_here(digest) and bool(fetches.asked([digest])))
    fetches.take(files)
    fetches.take(packs.given(fetches.asked([digest]), []))
    eventually(lambda: fetches.is_here(digest))
    fetches.close()


def test_one_call_makes_few_packs_and_nodes_that_lack_the_same_share_one(cluster: Cluster) -> None:
    digests = [stored(cluster.store, {"a": b"%d" % index}) for index in range(NEW_PER_CALL + 2)]
    asked, made = [CodeAsked(digest=digest) for digest in digests], list[CodeAsked]()
    first = cluster.packs.given(asked, made)
    assert [each.asked for each in first] == asked[:NEW_PER_CALL] == made
    again = cluster.packs.given(asked[:KEPT], made)
    assert [each.pack is given.pack for each, given in zip(again, first, strict=True)] == [True] * KEPT


def test_what_no_live_gang_uses_goes_from_a_node_after_a_while(cluster: Cluster) -> None:
    digest = stored(cluster.store, CODE)
    cluster.end_of(that_runs(cluster, digest, "true"))
    node = cluster.folder / "n1"
    clear(node, {"j1": (digest,)}, -1.0)
    assert (node / "work/j1/code/train.py").exists() and list((node / "code/chunks").glob("*/*"))
    clear(node, {}, 3600.0)
    assert (node / "work/j1/code/train.py").exists()
    clear(node, {}, -1.0)
    assert not (node / "work/j1").exists() and not list((node / "code/chunks").glob("*/*"))


def test_ranks_start_once_every_node_of_the_gang_is_ready(cluster: Cluster) -> None:
    """1 this node is ready and no rank runs, 2 it is told to go."""
    launch = of_two_nodes(cluster, "j1")
    ready = cluster.until(launch, lambda seen: seen.is_ready)
    assert ready.started_node_boottime_s is None
    end = cluster.until(launch, is_ended, go=True)
    assert (end.exit and end.exit.outcome, end.log) == (GangOutcome.EXITED, b"[0] here\n")


def test_a_node_that_is_ready_waits_no_longer_than_its_lease(cluster: Cluster) -> None:
    launch = of_two_nodes(cluster, "j1")
    cluster.until(launch, lambda seen: seen.is_ready, lasts_s=1.5)
    end = cluster.until(launch, is_ended, lasts_s=-1.0)
    assert end.exit is not None and end.exit.outcome is GangOutcome.PREEMPTED
    assert end.exit.message == "its lease ended while another of its nodes was made ready"


def of_two_nodes(cluster: Cluster, job_id: str) -> ShardLaunch:
    """A gang with one rank here and one elsewhere."""
    launch = that_runs(cluster, stored(cluster.store, CODE), "echo here", job_id, node_of_rank=("n1", "n2"))
    return replace(launch, instruction=replace(launch.instruction, worker_ids=("a-0", "a-1")))
