"""What a gang is launched with: all that its job's specification, its plan and its lease say, and nothing else."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from gavel.mechanism.cluster.reconcile import argv_of, env_of, gang_resources, launch
from gavel.ports import LaunchGang, SetResources
from gavel.types import CodeVersion, EphemeralResource, ExecutionPlan, Lease, ReplicaSpec
from gavel.types.services import Check, Serving
from tests.builders import a_job, a_spec

PLANS = (
    ExecutionPlan(name="one", kind="lm[one]", sizes=(2,), parameters={"tensor": 1}),
    ExecutionPlan(name="two", kind="lm[two]", sizes=(2,), parameters={"tensor": 2}, argv=("torchrun", "two.py")),
)
SERVING = Serving(port=8000, readiness=Check(path="/ready"))


def a_lease(**over: Any) -> Lease:
    fields: dict[str, Any] = {
        "job_id": "j1",
        "generation": 3,
        "combination": ("j1",),
        "accelerator_type": "fast",
        "worker_ids": ("fast-0", "fast-1"),
        "round_index": 1,
        "expires_at_s": 10.0,
    }
    return Lease(**(fields | over))


def test_a_job_that_asks_for_nothing_is_launched_with_its_program_and_its_lease() -> None:
    assert launch(a_lease(), a_job()) == LaunchGang(
        job_id="j1",
        generation=3,
        user="ann",
        argv=("python", "train.py"),
        env={},
        accelerator_type="fast",
        worker_ids=("fast-0", "fast-1"),
        resource="gavel/gang-j1-3",
        lease_expires_at_s=10.0,
        start_step=0,
        total_steps=100,
        checkpoint=None,
        tier="gold",
    )


def test_a_job_is_launched_with_all_that_it_asks_for_under_the_plan_of_its_lease() -> None:
    asked: dict[str, Any] = {
        "from_checkpoint": "j0/2-40",
        "workdir": "/home/ann",
        "python": "/opt/python",
        "image": "ann/train",
        "setup": "pip install .",
        "secrets": ("KEY",),
        "data": {"images": "/data/images"},
        "memory_bytes": 1 << 30,
    }
    code = CodeVersion(digest="c0de", commit="c0ffee")
    replica = ReplicaSpec(service="s1", version=1, serving=SERVING)
    spec = {**asked, "env": {"SEED": "7"}, "code": code, "cpu_cores": 2, "plans": PLANS, "replica": replica}
    job = a_job(spec=spec, steps_done=70, checkpoint="2-70")
    lease = a_lease(plan="two", combination=("j1", "j2"))
    assert launch(lease, job, job_token="secret", time_to_loss_s=3600.0) == LaunchGang(
        job_id="j1",
        generation=3,
        user="ann",
        argv=("torchrun", "two.py"),
        env={"SEED": "7", "GAVEL_PLAN": "two", "GAVEL_PLAN_TENSOR": "2"},
        accelerator_type="fast",
        worker_ids=("fast-0", "fast-1"),
        resource="gavel/gang-j1-3",
        lease_expires_at_s=10.0,
        start_step=70,
        total_steps=100,
        checkpoint="2-70",
        code="c0de",
        cpu_cores=2,
        serving=json.dumps(asdict(SERVING)),
        tier="gold",
        job_token="secret",
        time_to_loss_s=3600.0,
        shares_with="j2",
        **asked,
    )


@pytest.mark.parametrize("combination", [("j1", "j2"), ("j2", "j1")])
def test_either_job_of_a_packed_pair_has_the_other_as_its_partner(combination: tuple[str, str]) -> None:
    assert launch(a_lease(combination=combination), a_job()).shares_with == "j2"


def test_the_ranks_of_an_elastic_job_know_its_batches() -> None:
    own = {"env": {"SEED": "7"}, "sizes": (1, 2)}
    assert env_of(a_spec(**own, global_batch=64)) == {"SEED": "7", "GAVEL_GLOBAL_BATCH": "64"}
    assert env_of(a_spec(**own, global_batch=64, max_global_batch=256)) == {
        "SEED": "7",
        "GAVEL_GLOBAL_BATCH": "64",
        "GAVEL_MAX_GLOBAL_BATCH": "256",
    }


def test_a_plan_without_a_program_of_its_own_runs_that_of_the_job() -> None:
    assert argv_of(a_spec(plans=PLANS, plan="one")) == ("python", "train.py")
    assert argv_of(a_spec(plans=PLANS, plan="two")) == ("torchrun", "two.py")
    assert env_of(a_spec(plans=PLANS, plan="one")) == {"GAVEL_PLAN": "one", "GAVEL_PLAN_TENSOR": "1"}


@pytest.mark.parametrize(("image", "python"), [("", "python"), ("ann/train", "python3")])
def test_a_program_that_is_saved_by_commands_runs_within_the_one_that_calls_them(image: str, python: str) -> None:
    spec = a_spec(dump="save.sh", restore="load.sh", image=image)
    hooks = (python, "-m", "gavel_runtime._hooks", "save.sh", "load.sh")
    assert argv_of(spec) == (*hooks, "python", "train.py")


def test_a_gang_has_one_resource_on_each_of_its_nodes_with_a_unit_for_each_task() -> None:
    node_of = {"fast-0": "n1", "fast-1": "n0", "fast-2": "n1", "other-0": "n2"}
    lease = a_lease(worker_ids=("fast-0", "fast-1", "fast-2"))
    resources = tuple(
        EphemeralResource(
            name="gang-j1-3",
            node=node,
            capacity=capacity,
            owner="gavel",
            lease_expires_at_s=15.0,
            generation=3,
        )
        for node, capacity in (("n0", 1), ("n1", 2))
    )
    assert gang_resources(lease, node_of, lease_grace_s=5.0) == SetResources(resources=resources)
