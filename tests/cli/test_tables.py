"""What the command line shows fits the terminal."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gavel.cli import matrices, show
from gavel.cli.admin import audit_table
from gavel.cli.needs import where_it_runs, worker_needs
from gavel.cli.overview import placement_table, queue_table
from gavel.cli.table import GAP, Rows
from gavel.types import Scope
from tests.api.conftest import Service, service

__all__ = ["service"]

JOB_ID = "06fk3v9zj4x7qabc"
NAMES = ["resnet50-imagenet-baseline-long-name", "a"]


def lines(shown: Any, width: int) -> list[str]:
    console = Console(width=width, record=True, force_terminal=False, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(shown)
        return console.export_text().splitlines()


def a_job(**over: Any) -> Any:
    plain: dict[str, Any] = {
        "id": JOB_ID,
        "name": NAMES[0],
        "kind": "user/transformer-b256",
        "scale_factor": 2,
        "tier": "research-department",
        "state": "CANCELLING",
        "steps_done": 10,
        "steps_reported": 12,
        "total_steps": 100,
        "accelerator_type": "avx512",
        "rho": 1.25,
        "reason": "WaitingForCapacity",
        "message": "avx512 2/2 leased; behind by 0.04; 2 jobs ahead in tier",
        "service": None,
    }
    return plain | over


def an_allocation(types: int) -> Any:
    return {
        "policy": "hierarchical",
        "round_index": 7,
        "capacity": {f"type{n}": 2 for n in range(types)},
        "types": [f"type{n}" for n in range(types)],
        "is_fallback": False,
        "solver_outcome": "solved",
        "rows": [
            {
                "job_id": JOB_ID,
                "name": NAMES[0],
                "tier": "gold",
                "target": [0.25] * types,
                "received": [0.5] * types,
                "note": "",
            }
        ],
    }


SHOWN: dict[str, Callable[[], Any]] = {
    "jobs": lambda: show.jobs([a_job(), a_job(name="b", message="")]),
    "events": lambda: show.events(
        [
            {
                "sequence": 1,
                "job_id": JOB_ID,
                "at_s": 1.0,
                "kind": "gang.moved",
                "message": "on " * 60,
                "round_index": 3,
            }
        ]
    ),
    "audit": lambda: audit_table(
        [
            {
                "sequence": 1,
                "at_s": 1.0,
                "by": "operator",
                "action": "tier.changed",
                "subject": "tier/research-department",
                "user": "",
                "round_index": None,
                "before": {"weight": 1.0, "objective": "fairness", "cap": 1.0, "parent": "gold"},
                "after": {"weight": 2.0, "objective": "fifo", "cap": 1.0, "max_jobs": 3, "parent": None},
            }
        ]
    ),
    "tiers": lambda: show.tiers(
        [
            {
                "name": "research-department",
                "weight": 2.0,
                "objective": "finish_time_fairness",
                "guarantee": 0.25,
                "cap": 1.0,
                "default_priority": 0,
                "max_jobs": 1000,
                "accelerator_hours_per_month": 10_000.0,
                "budget_usd_per_month": 25_000.0,
                "non_preemptible_workers": 8,
                "session_longest_s": 7200.0,
                "parent": None,
                "version": 1,
            }
        ]
    ),
    "nodes": lambda: show.nodes(
        [
            {
                "name": "gpu-node-17.cluster.local",
                "state": "draining",
                "since_s": 1.0,
                "drain_by_s": 2.0,
                "problem": "",
                "by": "operator",
                "region": None,
                "capacity": {"a100": 8, "v100": 4},
                "jobs": [JOB_ID, JOB_ID],
            }
        ]
    ),
    "rounds": lambda: show.rounds(
        [
            {
                "round_index": 1200,
                "starts_at_s": 1.0,
                "duration_s": 60.0,
                "policy": "hierarchical",
                "solver_outcome": "solved",
                "leases": [
                    {
                        "job_id": JOB_ID,
                        "generation": 1,
                        "accelerator_type": "a100",
                        "worker_ids": ["gpu-node-17:a100-0", "gpu-node-17:a100-1"],
                        "is_profiling": True,
                        "starts_at_s": 1.0,
                        "expires_at_s": 2.0,
                    }
                ]
                * 3,
            }
        ]
    ),
    "cluster": lambda: show.cluster(
        {
            "workers": [
                {
                    "id": "gpu-node-17.cluster.local:a100-0",
                    "node": "gpu-node-17.cluster.local",
                    "accelerator_type": "a100-sxm4-80gb",
                    "price_usd_per_hour": 1.0,
                    "shares_core": False,
                    "busy": True,
                    "job_ids": [JOB_ID, None],
                }
            ],
            "nodes": [],
            "capacity": {},
            "notes": [],
            "resources": [],
        }
    ),
    "queue": lambda: queue_table(
        {
            "items": [
                {
                    "position": 17,
                    "id": JOB_ID,
                    "name": NAMES[0],
                    "kind": "user/transformer-b256",
                    "user": "annabella",
                    "tier": "research-department",
                    "state": "PREEMPTED",
                    "reason": "WaitingForCapacity",
                    "message": "avx512 2/2 leased; behind by 0.04; 2 jobs ahead in tier",
                    "priority": 0,
                    "scale_factor": 1,
                    "submitted_at_s": 1.0,
                    "steps": 1,
                    "total_steps": 2,
                }
            ],
            "waiting": 400,
            "reasons": {},
        }
    ),
    "placements": lambda: placement_table(
        {
            "rounds": [],
            "worker_ids": ["w"],
            "workers": 900,
            "blocks": [
                {
                    "worker_id": "gpu-node-17.cluster.local:a100-0",
                    "accelerator_type": "a100-sxm4-80gb",
                    "job_id": JOB_ID,
                    "name": NAMES[0],
                    "tier": "research-department",
                    "generation": 1,
                    "first_round": 1000,
                    "last_round": 1040,
                    "leases": 41,
                    "is_profiling": False,
                }
            ],
        }
    ),
    "operation": lambda: show.operation(
        {
            "id": JOB_ID,
            "kind": "node.drain",
            "subject": "node/gpu-node-17.cluster.local",
            "state": "failed",
            "result": {"window_s": 60.0, "jobs": [JOB_ID, JOB_ID]},
            "error": {"detail": "no node of that name " * 5, "field": None},
            "by": "operator",
            "created_at_s": 1.0,
            "finished_at_s": None,
        }
    ),
    "two types": lambda: matrices.allocation(an_allocation(2)),
    "seven types": lambda: matrices.allocation(an_allocation(7)),
}


@pytest.mark.parametrize("width", [60, 80, 132])
@pytest.mark.parametrize("name", SHOWN)
def test_a_table_fits_and_keeps_ids_whole(name: str, width: int) -> None:
    shown = lines(SHOWN[name](), width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    if name not in {"tiers", "audit", "events"}:
        assert JOB_ID in text, text


def test_what_was_left_out_is_said_and_a_wide_terminal_has_all() -> None:
    narrow, wide = ("\n".join(lines(SHOWN["jobs"](), width)) for width in (80, 160))
    assert "no room for RHO, KIND" in narrow and "RHO" not in narrow.splitlines()[0]
    assert "no room" not in wide and "RHO" in wide and "2 jobs ahead in tier" in wide


def test_the_audit_log_shows_what_was_changed_and_nothing_else() -> None:
    (_, entry) = lines(SHOWN["audit"](), 160)
    assert entry.rstrip().endswith("weight 1.0 → 2.0; objective fairness → fifo; parent gold →; max_jobs 3")


def test_many_types_come_one_a_line_on_a_narrow_terminal() -> None:
    narrow = lines(SHOWN["seven types"](), 80)
    assert sum(JOB_ID in line for line in narrow) == 7 and "TARGET" in narrow[1]
    assert sum(JOB_ID in line for line in lines(SHOWN["seven types"](), 160)) == 1


CELLS = st.text(st.characters(categories=["L", "N", "P"]), max_size=30)


@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=4), width=st.integers(30, 100))
def test_no_line_of_any_table_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    table = Rows("A", "B", "C", "D", spare=("B", "D"), long=("C",))
    for row in rows:
        table.add_row(*row)
    console = Console(width=width, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        rendered = console.render_lines(table, console.options)
    assert all(sum(segment.cell_length for segment in line) <= width for line in rendered)
    assert GAP == 2


def test_a_real_terminal_of_80_columns_holds_the_list_of_jobs(service: Service, tmp_path: Path) -> None:
    operator = service.operator()
    name = "a-name-that-is-much-longer-than-one-would-like-to-type"
    job = operator.post("/v1/jobs", json={"argv": ["x"], "total_steps": 5, "name": name, "tier": "gold"}).json()["id"]
    env = {"PATH": os.environ["PATH"], "COLUMNS": "80", "LINES": "24", "TERM": "xterm", "PYTHONPATH": os.getcwd()}
    env |= {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)}
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "gavel.cli", "job", "list"]
    subprocess.run(command, cwd=tmp_path, env=env, stdout=follower, stdin=follower, timeout=60, check=True)
    os.close(follower)
    text = re.sub(r"\x1b\[[0-9;]*m", "", os.read(leader, 100_000).decode())
    os.close(leader)
    assert job in text and max(map(len, text.splitlines())) <= 80


def test_what_a_worker_needs_is_said_as_people_say_it() -> None:
    assert [worker_needs(1, 0), worker_needs(2, 1_500_000_000)] == ["1 CPU core", "2 CPU cores, 1,500.0 MB of memory"]
    where = {"accelerator_types": ["v100"], "accelerator_memory_bytes": 16_000_000_000, "node_labels": {"disk": "nvme"}}
    where |= {"regions": [], "topology_label": "rack"}
    nodes = "nodes with disk=nvme; nodes with one value of rack"
    assert where_it_runs(a_job(**where)) == f"v100; accelerators with 16,000.0 MB of memory; {nodes}"


def test_a_list_of_jobs_says_of_a_service_how_many_replicas_are_ready() -> None:
    services = [a_job(total_steps=None, service={"ready": ready, "replicas": 3}) for ready in (0, 2)]
    shown = "\n".join(lines(show.jobs([*services, a_job()]), 200))
    assert "0/3 ready" in shown and "2/3 ready" in shown and "12%" in shown
