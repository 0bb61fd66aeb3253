"""Execution plans in a history: each with its kind, where it holds, and its speeds by size and accelerator type."""

from collections.abc import Mapping
from typing import Any

from gavel.types import AcceleratorType
from gavel.types.execution_plans import ExecutionPlan
from workloads.traces.job import number, whole

BY_SIZE = "throughput_steps_per_s_by_size"
COPIED = ("name", "kind", "parameters", "sizes", "accelerator_types", "accelerator_memory_bytes")
"""Fields of a plan that a history has under the same name. Commands are not written: a simulation runs none."""

SizeRates = Mapping[int, Mapping[AcceleratorType, float]]
"""Steps per second of a whole gang, by size and type."""


def plan_row(plan: Mapping[str, Any], steps_per_s: SizeRates) -> dict[str, Any]:
    """Return a plan, its fields by name, as a history has it."""
    rates = {str(size): dict(of_size) for size, of_size in steps_per_s.items()}
    return {name: plan[name] for name in COPIED} | {BY_SIZE: rates}


def plan_of(row: Mapping[str, Any]) -> tuple[ExecutionPlan, SizeRates]:
    """Return a plan of a history and its speeds. Raise ValueError or KeyError for a field that cannot be read."""
    plan = ExecutionPlan(
        name=str(row["name"]),
        kind=str(row["kind"]),
        parameters={str(name): whole(str(value), str(name)) for name, value in row.get("parameters", {}).items()},
        sizes=tuple(sorted({whole(str(size), "sizes") for size in row["sizes"]})),
        accelerator_types=tuple(str(each) for each in row.get("accelerator_types", ())),
        accelerator_memory_bytes=whole(
            str(row.get("accelerator_memory_bytes", 0)), "accelerator_memory_bytes", least=0
        ),
    )
    return plan, rates_by_size(row.get(BY_SIZE, {}))


def rates_by_size(row: Mapping[str, Any]) -> dict[int, dict[AcceleratorType, float]]:
    """Return speeds by size and type as a history has them. Raise ValueError for what is no size or no speed."""
    return {whole(size, BY_SIZE): rates(of_size) for size, of_size in row.items()}


def rates(row: Mapping[str, Any]) -> dict[AcceleratorType, float]:
    """Return speeds by type as a history has them. Raise ValueError for what is no speed."""
    return {str(name): number(str(rate), f"throughput on {name}") for name, rate in row.items()}
