"""What a person writes becomes a scenario, and each mistake is named."""

from pathlib import Path

import pytest

from gavel.errors import InvalidRequest
from gavel.simulator.outcome import NodeOutage
from gavel.simulator.setup import (
    Workload,
    cluster_of,
    costs_of,
    outages_of,
    range_of,
    survey,
    tier_shares_of,
    tiers_of,
)


def test_a_cluster_is_read_from_text() -> None:
    cluster = cluster_of("v100:3:2,k80:2")
    assert cluster.capacity_workers() == {"k80": 2, "v100": 3}
    assert [worker.node for worker in cluster.workers] == ["v100-node-0"] * 2 + ["v100-node-1"] + ["k80-node-0"] * 2
    assert cluster.workers[0].price_usd_per_hour == 0.74


@pytest.mark.parametrize("text", ["v100", "v100:0", "v100:a", ":3", "v100:1:2:3", "a:1,a:2", ""])
def test_a_cluster_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cluster"):
        cluster_of(text)


def test_ranges_tiers_and_workloads_that_cannot_be_read_are_named() -> None:
    assert range_of("3:5") == (3, 5)
    assert [(tier.name, tier.weight) for tier in tiers_of(["gold=2"])] == [("default", 1.0), ("gold", 2.0)]
    assert costs_of(["30", "LM=5"]) == {"": 30.0, "LM": 5.0}
    for wrong in (
        lambda: costs_of(["LM=-1"]),
        lambda: range_of("5:3"),
        lambda: tiers_of(["gold=much"]),
        lambda: survey(Workload(text="missing.csv"), None),
    ):
        with pytest.raises(InvalidRequest):
            wrong()
    with pytest.raises(InvalidRequest, match="give one"):
        survey(Workload(text="bursty?jobs=3&per_hour=1"), None)


def test_outages_and_tier_shares_are_read_from_text() -> None:
    cluster = cluster_of("v100:8")
    assert outages_of(["v100-node-0=60:120"], ["v100-node-1=0:30"], cluster) == (
        NodeOutage(node="v100-node-0", from_s=60.0, until_s=120.0),
        NodeOutage(node="v100-node-1", from_s=0.0, until_s=30.0, is_drain=True),
    )
    assert tier_shares_of("gold=1, free=3") == {"gold": 1.0, "free": 3.0}
    for wrong, message in (
        ("v100-node-0=60", "outage: cannot read"),
        ("v100-node-0=60:30", "outage: cannot read"),
        ("k80-node-0=60:90", "outage: there is no node 'k80-node-0'; nodes are named like v100-node-0"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            outages_of([wrong], [], cluster)
    with pytest.raises(InvalidRequest, match="tier-shares: cannot read 'gold'"):
        tier_shares_of("gold")


def test_tiers_are_drawn_in_the_parts_asked_for_and_the_same_for_each_policy(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_time_s,duration_s,num_gpus\n" + "1,10,1\n" * 400, encoding="utf-8")
    workload = Workload(text=str(path), tier_shares={"gold": 1.0, "free": 3.0}, seed=1)
    first, again = ([job.spec.tier for job in workload.jobs()] for _ in range(2))
    assert first == again and 0.2 < first.count("gold") / 400 < 0.3
    assert survey(workload, (5, 9)).measured == 4 and survey(workload, None).jobs == 400
