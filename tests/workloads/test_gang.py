"""Gangs of several ranks: they stop after the same step, and none outlives another for long."""

import json
import signal
import socket
from contextlib import ExitStack

import pytest

from gavel_runtime._admission import STRANGERS_MAX
from tests.workloads.gang import Gang, counting, until

GATHER = """
from gavel_runtime import job

for step in job.steps():
    gathered = job.all_gather(b"%d of rank %d" % (step, job.rank) * 20_000)
    assert gathered == tuple(b"%d of rank %d" % (step, rank) * 20_000 for rank in range(3)), step
print(gathered[2][:11])
"""


def test_a_gang_runs_to_its_end_together(gang: Gang) -> None:
    codes, outputs = gang.start(counting(), ranks=range(3), total=30).finish()
    assert (codes, outputs) == ([0] * 3, ["trained 30\n"] * 3)
    assert gang.names() == ["7-30"]
    assert [report["kind"] for report in gang.reports()[-2:]] == ["checkpoint", "finished"]


def test_every_rank_gets_every_payload_in_the_order_of_ranks(gang: Gang) -> None:
    assert gang.start(GATHER, ranks=range(3), total=20).finish() == ([0] * 3, ["b'19 of rank '\n"] * 3)


@pytest.mark.small("stop", "SIGTERM to rank 1")
@pytest.mark.parametrize("who", ["lease end", "stop", "SIGTERM to rank 0", "SIGTERM to rank 1", "SIGTERM to all"])
def test_all_ranks_stop_after_the_same_step(gang: Gang, who: str) -> None:
    gang.start(counting(), ranks=range(2), total=100_000)
    until(lambda: gang.done(0) > 3)
    signalled = {"SIGTERM to rank 0": [0], "SIGTERM to rank 1": [1], "SIGTERM to all": [0, 1]}.get(who, [])
    for rank in signalled:
        gang.ranks[rank].send_signal(signal.SIGTERM)
    if not signalled:
        gang.lease(0.2, stop=who == "stop")
    codes, _ = gang.finish()
    assert codes == [75, 75]
    assert gang.done(0) == gang.done(1)
    assert gang.reports()[-1]["step"] == gang.done(0)
    assert gang.names() == [f"7-{gang.done(0)}"]


def test_no_rank_runs_ahead(gang: Gang) -> None:
    """Rank 1 is quicker, yet is at most one step further than rank 0."""
    script = counting(0).replace("time.sleep(0)", "time.sleep(0 if job.rank else 0.005); check()")
    check = """
def check():
    own, other = (Path(os.environ["OUT"], f"rank-{rank}") for rank in (job.rank, 1 - job.rank))
    steps = int(other.read_text() or step) if other.exists() else step
    assert abs(steps - step) <= 1, (steps, step)


for step"""
    codes, outputs = gang.start(script.replace("for step", check, 1), ranks=range(2), total=60).finish()
    assert codes == [0, 0], outputs


@pytest.mark.small("0")
@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_rank_ends_the_others_with_a_clear_error(gang: Gang, dead: int) -> None:
    gang.start(counting(), ranks=range(2), total=100_000)
    until(lambda: gang.done(dead) > 3)
    gang.ranks[dead].kill()
    codes, outputs = gang.finish()
    assert codes[dead] == -signal.SIGKILL
    assert codes[1 - dead] == 1
    assert f"GangError: rank {dead} left the gang" in outputs[1 - dead]


@pytest.mark.full
def test_a_rank_that_hangs_is_given_up_after_the_time_limit(gang: Gang) -> None:
    gang.start(counting(), ranks=range(2), total=100_000, GAVEL_GANG_TIMEOUT_S="2.5")
    until(lambda: gang.done(1) > 3)
    gang.ranks[1].send_signal(signal.SIGSTOP)
    output, _ = gang.ranks[0].communicate(timeout=60)
    assert gang.ranks[0].returncode == 1
    assert "GangError: rank 1 did not answer for 2.5 s" in output


def test_a_rank_that_never_comes_is_waited_for_within_the_limit(gang: Gang) -> None:
    gang.start(counting(), ranks=range(1), world_size=2, GAVEL_GANG_TIMEOUT_S="0.3")
    gang.start(counting(), ranks=range(1, 2), world_size=2, GAVEL_GANG_DIR=str(gang.root), GAVEL_GANG_TIMEOUT_S="0.3")
    codes, outputs = gang.finish()
    assert codes == [1, 1]
    assert "1 of 2 ranks joined within 0.3 s" in outputs[0]
    assert "rank 0 did not write hub.json within 0.3 s" in outputs[1]


def test_a_rank_with_another_key_is_not_let_in(gang: Gang) -> None:
    gang.start(counting(), ranks=range(1), world_size=2, GAVEL_GANG_TIMEOUT_S="1")
    gang.start(counting(), ranks=range(1, 2), world_size=2, GAVEL_GANG_KEY="guessed")
    codes, outputs = gang.finish()
    assert codes == [1, 1]
    assert "did not let rank 1 in" in outputs[1]
    assert "1 of 2 ranks joined" in outputs[0]


def test_strangers_at_the_hub_do_not_disturb_the_gang(gang: Gang) -> None:
    gang.start(counting(), ranks=range(1), world_size=2, total=5)
    until((gang.directory / "hub.json").exists)
    fields = json.loads((gang.directory / "hub.json").read_text())
    with socket.create_connection((fields["host"], fields["port"])) as stranger:
        stranger.sendall(b"\xff" * 100)
    with socket.create_connection((fields["host"], fields["port"])) as stranger:
        stranger.sendall(b"\x00\x00\x00\x04nope")
    gang.start(counting(), ranks=range(1, 2), world_size=2, total=5)
    assert gang.finish()[0] == [0, 0]


@pytest.mark.full
def test_silent_strangers_do_not_use_up_the_start_of_a_gang(gang: Gang) -> None:
    """Each may be silent for 5 s, and there are more of them than may wait at once."""
    gang.start(counting(), ranks=range(1), world_size=2, total=5, GAVEL_GANG_TIMEOUT_S="20")
    until((gang.directory / "hub.json").exists)
    fields = json.loads((gang.directory / "hub.json").read_text())
    with ExitStack() as stack:
        for _ in range(STRANGERS_MAX + 20):
            stack.enter_context(socket.create_connection((fields["host"], fields["port"])))
        gang.start(counting(), ranks=range(1, 2), world_size=2, total=5)
        assert gang.finish()[0] == [0, 0]


def test_ranks_that_do_different_things_are_told_so(gang: Gang) -> None:
    script = "from gavel_runtime import job\nfor step in job.steps():\n    job.rank and job.all_gather(b'')"
    codes, outputs = gang.start(script, ranks=range(2)).finish()
    assert codes == [1, 1]
    assert "rank 1 called all_gather where this rank expected it to have ended its step" in outputs[0]
