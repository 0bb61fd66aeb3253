"""Execution plans: the ways in which a job can run at one size, such as `tensor=2,pipeline=1`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gavel.types.cluster import AcceleratorType
from gavel.types.elastic_kinds import elastic_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """One way in which the ranks of a job divide its work.

    `parameters` are told to the program; `sizes` are those of the job's at which the plan holds. `argv` is its own
    command line, (): that of the job. `accelerator_types` and `accelerator_memory_bytes` say where it holds, as those
    of a job do, and in addition to them. `kind` is the job's kind under the plan: speeds are learned for each plan.
    """

    name: str
    kind: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    argv: tuple[str, ...] = ()
    accelerator_types: tuple[AcceleratorType, ...] = ()
    accelerator_memory_bytes: int = 0


def plan_name(parameters: Mapping[str, int]) -> str:
    """Return the name of a plan that its user gave none: its parameters, as in `tensor=2,pipeline=1`."""
    return ",".join(f"{name}={value}" for name, value in parameters.items())


def plan_kind(kind: str, plan: str, global_batch: int = 0, max_global_batch: int = 0) -> str:
    """Return the kind of jobs that run under a plan, such as `lm[tensor=2]` and `lm[tensor=2]-global-batch-64`.

    `kind` is the job's without its global batch; "": the job has no plan.
    """
    return elastic_kind(f"{kind}[{plan}]" if plan else kind, global_batch, max_global_batch)
