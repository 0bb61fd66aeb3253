"""Jobs that need more than workers: the fast simulation plans what the driver plans, and refuses what cannot run."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest
from gavel.simulator.lean import simulate
from gavel.types import Cluster
from tests.simulator.test_lean import a_cluster_of_nodes, a_scenario, a_trace_job, assert_same

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def a_mixed_cluster() -> Cluster:
    """Two nodes of each type, four workers each; the first of each type has a label, few cores and little memory."""
    plain = a_cluster_of_nodes(per_node=4, fast=8, slow=8)
    is_first = {node.name for node in plain.nodes if node.name.endswith("-0")}
    nodes = [
        replace(node, cpu_cores=4, memory_bytes=40, labels={"disk": "nvme"})
        if node.name in is_first
        else replace(node, cpu_cores=12, memory_bytes=120)
        for node in plain.nodes
    ]
    workers = [replace(each, memory_bytes=80 if each.accelerator_type == "fast" else 40) for each in plain.workers]
    return Cluster(nodes=tuple(nodes), workers=tuple(workers))


wanted = st.lists(
    st.tuples(
        st.sampled_from(["steep", "flat"]),
        st.integers(1, 300),
        st.integers(0, 90),
        st.sampled_from([1, 1, 1, 2]),
        st.fixed_dictionaries(
            {
                "cpu_cores": st.sampled_from([1, 1, 3]),
                "memory_bytes": st.sampled_from([0, 20]),
                "accelerator_types": st.sampled_from([(), (), ("fast",), ("!fast",)]),
                "node_labels": st.sampled_from([{}, {}, {"disk": "nvme"}]),
            }
        ),
    ),
    min_size=2,
    max_size=9,
)


@pytest.mark.parametrize("over", [{}, {"backfill": True}], ids=str)
@settings(max_examples=60 if FULL else 3, phases=(Phase.explicit, Phase.generate))
@given(drawn=wanted)
def test_it_plans_the_rounds_that_the_driver_plans(over: dict[str, Any], drawn: list[Any]) -> None:
    fits_nowhere = [size == 2 and needs["node_labels"] and needs["cpu_cores"] == 3 for *_, size, needs in drawn]
    fitting = [job for job, is_out in zip(drawn, fits_nowhere, strict=True) if not is_out]
    jobs = [
        a_trace_job(index, kind, steps, float(at_s), size, **needs)
        for index, (kind, steps, at_s, size, needs) in enumerate(sorted(fitting, key=lambda job: job[2]))
    ]
    if jobs:
        assert_same(jobs, a_scenario(a_mixed_cluster(), "equal_share", **over))


def test_a_job_that_can_run_nowhere_is_refused() -> None:
    job = a_trace_job(0, "steep", 10, size=2, cpu_cores=3, node_labels={"disk": "nvme"})
    with pytest.raises(InvalidRequest, match="runs on none of fast, slow"):
        simulate([job], a_scenario(a_mixed_cluster(), "equal_share"))
