"""CPU cores and memory on their way from specifications and nodes to the allocation problem."""

import math

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.problem import problem_from
from gavel.types import AllocationProblem, Cluster, Job, Node, Tier, Worker
from tests.builders import a_cluster, a_job


def problem_of(jobs: list[Job], cluster: Cluster) -> AllocationProblem:
    return problem_from(
        jobs,
        feasibility=Feasibility(cluster),
        tiers={"gold": Tier(name="gold")},
        matrix=ReconciledThroughputs().matrix,
        now_s=0.0,
        round_duration_s=10.0,
        pair_rates=None,
        warm_start={},
    )


def test_a_gang_demands_cores_and_memory_for_each_of_its_workers() -> None:
    jobs = [a_job("j1", spec={"scale_factor": 2, "cpu_cores": 3, "memory_bytes": 10}), a_job("j2")]
    problem = problem_of(jobs, a_cluster(fast=2))
    assert problem.cpu_cores.tolist() == [6.0, 1.0]
    assert problem.memory_bytes.tolist() == [20.0, 0.0]


def test_the_cluster_has_what_its_nodes_have_together() -> None:
    nodes = (Node(name="a", cpu_cores=4, memory_bytes=100), Node(name="b", cpu_cores=8, memory_bytes=50))
    workers = (Worker(id="w", node="a", accelerator_type="fast"),)
    problem = problem_of([a_job()], Cluster(nodes=nodes, workers=workers))
    assert (problem.cluster_cpu_cores, problem.cluster_memory_bytes) == (12.0, 150.0)


def test_what_a_node_does_not_say_limits_nobody() -> None:
    nodes = (Node(name="a", cpu_cores=4, memory_bytes=100), Node(name="b", cpu_cores=8))
    assert problem_of([], Cluster(nodes=nodes)).cluster_memory_bytes == math.inf
    assert problem_of([], Cluster()).cluster_cpu_cores == math.inf
