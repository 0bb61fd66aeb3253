"""The node agent without Ray: files, supervisors and processes of this machine."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gavel.backends import machine
from gavel.backends.nodes.agent import PORTS_KEPT, NodeAgent
from gavel.backends.nodes.protocol import PROTOCOL, Answer, Order, ShardLaunch, ShardSeen, ShardWanted, Slot
from gavel.errors import BackendUnavailable
from gavel.ports import LaunchGang
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import JOBS, eventually, processes_of

Agents = Callable[[], NodeAgent]

SLOT = Slot(accelerator_type="a", resource="gavel:a", index=0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the agent keeps its node; nothing below it runs afterwards."""
    yield tmp_path
    while left := processes_of(tmp_path / "n1"):
        for pid in left:
            with suppress(ProcessLookupError):  # a sandbox ends as a whole
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def agents(folder: Path) -> Iterator[Callable[[], NodeAgent]]:
    """Makes agents of the one node; the one before has died when the next is made."""
    made: list[NodeAgent] = []

    def make() -> NodeAgent:
        for each in made:
            each.close()
        made.append(NodeAgent("n1", str(folder), PROTOCOL))
        return made[-1]

    yield make
    for each in made:
        each.close()


def a_launch(folder: Path, job_id: str = "j1", generation: int = 1, **over: object) -> ShardLaunch:
    instruction = LaunchGang(
        job_id=job_id,
        generation=generation,
        user="ann",
        argv=(sys.executable, "-I", "-S", str(JOBS), "trains"),
        env={},
        accelerator_type="a",
        worker_ids=("a-0",),
        resource=f"gavel/gang-{job_id}-{generation}",
        lease_expires_at_s=0.0,
        start_step=0,
        total_steps=100,
        checkpoint=None,
    )
    given = {
        "instruction": instruction,
        "ranks": (0,),
        "slots": (SLOT,),
        "node_of_rank": ("n1",),
        "environment": {"MASTER_PORT": "1"},
        "lease_grace_s": 0.3,
        "log_bytes": 1 << 16,
        "job_folders": ("/",),
        "checkpoints": str(folder / "checkpoints"),
    }
    return ShardLaunch(**{**given, **over})  # type: ignore[arg-type]


def wanted(launch: ShardLaunch, lasts_s: float = 60.0, **over: object) -> ShardWanted:
    given = {"key": launch.key, "lease_node_boottime_s": machine.boottime_s() + lasts_s, "launch": launch}
    return ShardWanted(**{**given, **over})  # type: ignore[arg-type]


def tell(agent: NodeAgent, *shards: ShardWanted, epoch: int = 1) -> Answer:
    return agent.exchange(Order(epoch=epoch, boot_id=machine.boot_id(), shards=shards))


def until(agent: NodeAgent, ask: ShardWanted, holds: Callable[[ShardSeen], bool]) -> ShardSeen:
    seen: list[ShardSeen] = []

    def look() -> bool:
        seen[:] = [shard for shard in tell(agent, ask).shards if shard.key == ask.key]
        return bool(seen) and holds(seen[0])

    eventually(look)
    return seen[0]


def is_started(shard: ShardSeen) -> bool:
    return shard.started_node_boottime_s is not None


def is_ended(shard: ShardSeen) -> bool:
    return shard.state is GangState.ENDED


def test_an_order_told_twice_starts_one_gang(folder: Path, agents: Agents) -> None:
    agent, ask = agents(), wanted(a_launch(folder))
    tell(agent, ask, ask)
    until(agent, ask, is_started)
    assert len([pid for pid in processes_of(folder / "n1") if _is_job(pid)]) == 1


def test_a_supervisor_is_no_child_of_the_agent(folder: Path, agents: Agents) -> None:
    """Ray kills the children of an actor that it ends."""
    agent, ask = agents(), wanted(a_launch(folder))
    until(agent, ask, is_started)
    record = machine.read_json(str(folder / "n1/gangs/j1/1/supervisor.json"))
    assert record["pid"] not in machine.descendants(os.getpid())


def test_a_new_agent_adopts_what_the_old_one_left_and_shows_it_to_a_new_service(folder: Path, agents: Agents) -> None:
    old, ask = agents(), wanted(a_launch(folder))
    before = until(old, ask, is_started)
    (shard,) = tell(agents(), epoch=2).shards
    assert shard.launch == ask.launch
    assert (shard.key, shard.state) == (("j1", 1), GangState.RUNNING)
    assert shard.started_node_boottime_s == before.started_node_boottime_s


def test_only_the_node_of_rank_0_has_the_ports_of_a_gang_while_it_is_live(folder: Path, agents: Agents) -> None:
    agent, first = agents(), wanted(a_launch(folder))
    instruction = replace(a_launch(folder, "j2").instruction, worker_ids=("b-0", "a-0"))
    second_node = replace(SLOT, index=1)
    other = a_launch(folder, "j2", instruction=instruction, ranks=(1,), node_of_rank=("n0", "n1"), slots=(second_node,))
    tell(agent, first, wanted(other))
    until(agent, first, is_started)
    until(agent, wanted(other), is_started)
    assert [agent.has_rank_0(key) for key in (("j1", 1), ("j1", 2), ("j2", 1))] == [True, False, False]
    until(agent, replace(first, stop=True), is_ended)
    assert not agent.has_rank_0(("j1", 1))


def test_two_agents_cannot_have_one_folder(folder: Path, agents: Agents) -> None:
    agents()
    with pytest.raises(BackendUnavailable, match="another service uses"):
        NodeAgent("n1", str(folder), PROTOCOL)


def test_an_older_service_is_refused_by_a_restarted_agent_too(folder: Path, agents: Agents) -> None:
    agent = agents()
    assert not tell(agent, epoch=7).refused
    answer = tell(agents(), wanted(a_launch(folder)), epoch=6)
    assert "taken this node over" in answer.refused
    assert not processes_of(folder / "n1")


def test_a_lease_ends_the_gang_though_nobody_asks(folder: Path, agents: Agents) -> None:
    agent, ask = agents(), wanted(a_launch(folder), lasts_s=1.0)
    until(agent, ask, is_started)
    eventually(lambda: not processes_of(folder / "n1"))
    end = until(agent, ask, is_ended)
    assert end.exit is not None
    assert end.exit.outcome is GangOutcome.PREEMPTED


def test_an_extension_moves_the_lease_in_place(folder: Path, agents: Agents) -> None:
    agent, ask = agents(), wanted(a_launch(folder), lasts_s=1.0)
    before = until(agent, ask, is_started)
    later = replace(ask, launch=None, lease_node_boottime_s=ask.lease_node_boottime_s + 60)
    tell(agent, later)
    past = until(agent, later, lambda _: machine.boottime_s() > ask.lease_node_boottime_s + 0.5)
    assert (past.state, past.started_node_boottime_s) == (GangState.RUNNING, before.started_node_boottime_s)


def test_a_stop_that_overtakes_its_launch_refuses_it(folder: Path, agents: Agents) -> None:
    agent, launch = agents(), a_launch(folder)
    tell(agent, replace(wanted(launch), launch=None, stop=True))
    assert not tell(agent, wanted(launch)).shards


def test_a_launch_whose_lease_is_over_starts_nothing(folder: Path, agents: Agents) -> None:
    assert not tell(agents(), wanted(a_launch(folder), lasts_s=-1.0)).shards


def test_a_slot_that_is_held_is_given_to_nobody_else_until_it_is_free(folder: Path, agents: Agents) -> None:
    agent, first, second = agents(), wanted(a_launch(folder)), wanted(a_launch(folder, "j2"))
    until(agent, first, is_started)
    assert [shard.key for shard in tell(agent, first, second).shards] == [("j1", 1)]
    stop = replace(first, launch=None, stop=True)

    def has_second() -> bool:
        return ("j2", 1) in [shard.key for shard in tell(agent, stop, second).shards]

    eventually(has_second)
    assert is_ended(until(agent, stop, is_ended))


def test_a_forgotten_gang_is_gone_and_its_token_stays_refused(folder: Path, agents: Agents) -> None:
    agent, ask = agents(), wanted(a_launch(folder))
    until(agent, ask, is_started)
    forget = replace(ask, launch=None, forget=True)
    eventually(lambda: not tell(agent, forget).shards)
    assert not (folder / "n1/gangs/j1/1").exists()
    assert not tell(agent, ask).shards


def test_reports_and_output_are_told_until_they_are_taken(folder: Path, agents: Agents) -> None:
    """An answer may be lost: what the service has not acknowledged comes again."""
    launch = a_launch(folder)
    done = replace(launch.instruction, argv=(*launch.instruction.argv[:-1], "finishes"), total_steps=1)
    agent, ask = agents(), wanted(replace(launch, instruction=done))
    end = until(agent, ask, lambda shard: is_ended(shard) and bool(shard.reports))
    (again,) = tell(agent, ask).shards
    assert [report.sequence for report in again.reports] == [report.sequence for report in end.reports] == [1]
    (taken,) = tell(agent, replace(ask, reports_after=1)).shards
    assert not taken.reports
    (afresh,) = tell(agent, ask).shards  # a new service, which lacks it
    assert [report.sequence for report in afresh.reports] == [1]


def test_output_is_read_from_where_the_service_is(folder: Path, agents: Agents) -> None:
    launch = a_launch(folder)
    talks = replace(launch.instruction, argv=("sh", "-c", "echo one; echo two"))
    agent, ask = agents(), wanted(replace(launch, instruction=talks))
    end = until(agent, ask, is_ended)
    assert (end.log, end.log_offset) == (b"one\ntwo\n", 8)
    (rest,) = tell(agent, replace(ask, log_offset=4)).shards
    assert rest.log == b"two\n"


def test_ranks_are_told_their_place_among_all_nodes(folder: Path, agents: Agents) -> None:
    """Two of three ranks run here; the other node has rank 0, and reports, which is no business of this one."""
    launch = a_launch(folder)
    says = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GAVEL_RANK $MASTER_PORT"
    three = replace(launch.instruction, argv=("sh", "-c", says), worker_ids=("a-9", "a-0", "a-1"))
    here = replace(
        launch,
        instruction=three,
        ranks=(1, 2),
        slots=(SLOT, replace(SLOT, index=1)),
        node_of_rank=("n0", "n1", "n1"),
    )
    end = until(agents(), wanted(here), is_ended)
    assert sorted(end.log.decode().splitlines()) == ["[1] 1 3 0 2 1 1 1", "[2] 2 3 1 2 1 2 1"]


def test_a_task_beside_the_ranks_is_told_that_it_cannot_start(folder: Path, agents: Agents) -> None:
    launch = a_launch(folder)
    asks = """echo '{"task": "play", "argv": ["true"], "requires": {"near": 1}}' > $GAVEL_GANG_DIR/tasks.jsonl"""
    agent, ask = agents(), wanted(replace(launch, instruction=replace(launch.instruction, argv=("sh", "-c", asks))))
    until(agent, ask, is_ended)
    (end,) = machine.Lines(str(folder / "n1/gangs/j1/1/ends.jsonl")).read()
    assert (end["task"], end["exit_code"]) == ("play", 127)
    assert "cannot launch tasks" in end["message"]


def test_ports_are_kept_until_a_gang_is_promised_them(folder: Path, agents: Agents) -> None:
    agent = agents()
    ports = tell(agent).ports
    assert len(set(ports)) == PORTS_KEPT
    ask = wanted(a_launch(folder, ports=ports[:2]))
    after = tell(agent, ask).ports
    assert len(after) == PORTS_KEPT
    assert not set(ports[:2]) & set(after)


def test_a_service_of_another_protocol_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="protocol"):
        NodeAgent("n1", str(tmp_path), PROTOCOL + 1)


def _is_job(pid: int) -> bool:
    return str(JOBS).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


UIDS = "2000001-2000009"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_program_is_a_user_of_its_own_on_a_node_whose_agent_is_root() -> None:
    """1 its files on the node and in the shared folder are that user's, 2 an agent that is not root says why."""
    umask = os.umask(0o022)
    try:
        with TemporaryDirectory() as name:
            os.chmod(name, 0o711)
            agent = NodeAgent("n1", name, PROTOCOL)
            argv = ("bash", "-c", "id -u; touch $GAVEL_CHECKPOINT_DIR/c")
            launch = a_launch(Path(name), uid=2000001)
            ask = wanted(replace(launch, instruction=replace(launch.instruction, argv=argv)))
            eventually(lambda: any(map(is_ended, agent.exchange(as_users(ask)).shards)))
            (shard,) = agent.exchange(as_users(ask)).shards
            assert shard.exit is not None and shard.log == b"2000001\n", shard
            assert (Path(name) / "checkpoints" / "j1" / "c").stat().st_uid == 2000001
            assert os.umask(0o077) == 0o077
            agent.close()
    finally:
        os.umask(umask)


def as_users(*shards: ShardWanted) -> Order:
    return Order(epoch=1, boot_id=machine.boot_id(), shards=shards, job_users=UIDS)


def test_a_node_whose_agent_is_not_root_says_why_it_is_not_used(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents()
    monkeypatch.setattr("gavel.backends.job_users.os.geteuid", lambda: 1000)
    umask = os.umask(0o022)
    problem = agent.exchange(as_users()).problem
    os.umask(umask)
    assert problem.startswith(f"job_users = {UIDS} needs root") and "this is uid 1000: run it as root" in problem
