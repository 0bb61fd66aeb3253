"""A standby with a state folder of its own takes a Ray cluster over from a leader that sleeps, and from a dead one."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster
from gavel.demo.service import ServiceProcess, wait_until
from tests.e2e.processes import LEADS, STANDS_BY, Member
from tests.e2e.test_standby import TRAINS

pytestmark = pytest.mark.ray

STEPS = 600


@pytest.mark.timeout(300)
def test_gangs_run_on_while_the_leader_sleeps_and_while_it_dies(one_node: LocalRayCluster, tmp_path: Path) -> None:
    """1. A job trains. 2. SIGSTOP: the standby leads. 3. SIGCONT, kill -9: the first leads again. No gang is lost."""
    settings = one_node.environment | {
        "GAVEL_BACKEND": "ray",
        "GAVEL_RAY_ADDRESS": one_node.address,
        "GAVEL_RAY_NODE_DIR": str(tmp_path / "nodes"),
        "GAVEL_RAY_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "GAVEL_RAY_REPORT_PERIOD_S": str(REPORT_PERIOD_S),
        "GAVEL_DATABASE_URL": f"sqlite:///{tmp_path / 'gavel.db'}",
        "GAVEL_ROUND_DURATION_S": "20",
        "GAVEL_LEADER_LEASE_S": "2",
    }
    with ExitStack() as stack:
        first = stack.enter_context(Member(tmp_path / "first", settings))
        first.wait_until_it_says(LEADS)
        second = stack.enter_context(Member(tmp_path / "second", settings))
        second.wait_until_it_says(STANDS_BY)
        with second.client() as client:
            assert wait_until(lambda: len(client.cluster()["workers"]) == 3, 60)
            job_id = client.submit(argv=TRAINS, total_steps=STEPS)["id"]
            assert wait_until(lambda: client.job(job_id)["steps_reported"] > 3, 90), client.job(job_id)
            first.pause()
            second.wait_until_it_says(f"{LEADS}, generation 2")
            seen = client.job(job_id)["steps_reported"]
            assert wait_until(lambda: client.job(job_id)["steps_reported"] > seen, 60), (
                "the new leader hears its reports"
            )
            first.resume()
            first.wait_until_it_says(STANDS_BY)
            second.kill()
        first.wait_until_it_says(f"{LEADS}, generation 3")
        with first.client() as client:
            assert wait_until(lambda: client.job(job_id)["state"] in ("COMPLETED", "FAILED"), 120), client.job(job_id)
            job, events = client.job(job_id), list(client.events(job_id))
            assert (job["state"], job["steps_done"]) == ("COMPLETED", STEPS), events
            assert "gang.lost" not in [event["kind"] for event in events], events
    for folder in ("first", "second", "nodes"):
        ServiceProcess(tmp_path / folder, {}).stop()
