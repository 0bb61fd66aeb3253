"""Checks what a submission says of the execution plans of a job, and makes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from api.http.errors import invalid
from api.schemas import JobSubmit
from api.schemas.elastic import LARGEST
from api.schemas.plans import PlanOfJob
from api.submission.changing_gangs import check_may_change
from api.submission.sizes import sizes_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.cluster.unmet_needs import unknown_type, unmet_need
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.types import ExecutionPlan, Job, JobSpec, in_plan, in_size
from gavel.types.execution_plans import plan_kind

OF_PLANS = ("accelerator_types", "accelerator_memory_bytes")  # needs that a plan states, too


def check_plans(body: JobSubmit) -> None:
    """Raise a 422 problem for plans that do not go with the rest, are named alike, or leave a size without any."""
    if not body.plans:
        return
    check_may_change(body, "plans", what="plan", each="under each")
    names = [plan.full_name for plan in body.plans]
    for index, name in enumerate(names):
        if (first := names.index(name)) < index:
            message = f"{name} is the name of plans.{first} too; leave one of them out, or give it another name"
            raise invalid(f"plans.{index}.name", message)
    sizes = sizes_of(body) or (body.scale_factor,)
    held = {size for index, plan in enumerate(body.plans) for size in _sizes_of(index, plan, sizes)}
    if without := [size for size in sizes if size not in held]:
        field = "sizes" if body.sizes else "scale_factor"
        raise invalid(field, f"no plan holds at size {without[0]}; add one that does, or leave {without[0]} out")


def _sizes_of(index: int, plan: PlanOfJob, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the job at which the plan holds. Raise a 422 problem if there is none, or no such size."""
    named = ", ".join(map(str, sizes))
    if wrong := [size for size in plan.sizes if size not in sizes]:
        raise invalid(f"plans.{index}.sizes", f"the job has no size {wrong[0]}; it has {named}")
    if plan.sizes:
        return tuple(sorted(set(plan.sizes)))
    if held := _default_sizes(plan, sizes):
        return held
    message = f"{plan.full_name} needs a multiple of {plan.degree} workers, and the job has {named}"
    raise invalid(f"plans.{index}", f"{message}; {_nearest(plan.degree, sizes)}, or state the sizes of the plan")


def _nearest(degree: int, sizes: Sequence[int]) -> str:
    """What size would do, the nearest to those that the job has."""
    below = [size // degree * degree for size in sizes if size >= degree]
    above = [-(-size // degree) * degree for size in sizes if -(-size // degree) * degree <= LARGEST]
    near = sorted({*below, *above}, key=lambda size: (min(abs(size - each) for each in sizes), size))[:2]
    return f"the nearest that would do: {' and '.join(map(str, sorted(near)))}" if near else "no size is so large"


def plans_of(body: JobSubmit, kind_under: Callable[[Sequence[str] | None], str]) -> tuple[ExecutionPlan, ...]:
    """Return the plans of a submission that was checked; `kind_under` gives the kind of a program, None: the job's."""
    sizes = sizes_of(body) or (body.scale_factor,)
    return tuple(
        ExecutionPlan(
            name=plan.full_name,
            kind=plan_kind(kind_under(plan.argv), plan.full_name, body.global_batch or 0, body.max_global_batch or 0),
            parameters=dict(plan.parameters),
            sizes=_sizes_of(index, plan, sizes),
            argv=tuple(plan.argv or ()),
            accelerator_types=tuple(dict.fromkeys(plan.accelerator_types)),
            accelerator_memory_bytes=plan.accelerator_memory_bytes,
        )
        for index, plan in enumerate(body.plans)
    )


def check_places(spec: JobSpec, feasibility: Feasibility) -> None:
    """Raise a 422 problem for a plan that holds on no accelerator type of the cluster."""
    for index, plan in enumerate(spec.plans):
        (seen,) = ruled_out([Job(id="", spec=in_plan(in_size(spec, plan.sizes[0]), plan.name))], ())
        if name := unknown_type(replace(seen.spec, accelerator_types=plan.accelerator_types), feasibility):
            there = ", ".join(feasibility.types)
            raise invalid(
                f"plans.{index}.accelerator_types", f"there is no accelerator type {name}; the cluster has {there}"
            )
        unmet = unmet_need(seen.spec, feasibility)
        if unmet is not None:
            is_own = unmet.field in OF_PLANS and getattr(plan, unmet.field)
            field = f"plans.{index}.{unmet.field}" if is_own else f"plans.{index}"
            raise invalid(field, f"under plan {plan.name} {unmet.message}. {unmet.would_do}")


def with_first_plan(spec: JobSpec) -> JobSpec:
    """Return the specification with the first plan in force that holds at its size; unchanged without plans."""
    return in_plan(spec, next((plan.name for plan in spec.plans if spec.scale_factor in plan.sizes), ""))


def stated_plans(spec: JobSpec) -> list[dict[str, object]]:
    """Return the plans of a submission that makes this specification; sizes that would be the default are left out."""
    plans = [
        PlanOfJob(
            name=plan.name,
            parameters=dict(plan.parameters),
            sizes=list(plan.sizes),
            argv=list(plan.argv) or None,
            accelerator_types=list(plan.accelerator_types),
            accelerator_memory_bytes=plan.accelerator_memory_bytes,
        )
        for plan in spec.plans
    ]
    return as_stored(plans, spec.possible_sizes)


def as_stored(plans: Sequence[PlanOfJob], sizes: Sequence[int]) -> list[dict[str, object]]:
    """Return the fields of plans as they are stored: with names, and without sizes that are the default."""
    return [
        plan.model_dump()
        | {
            "name": plan.full_name,
            "sizes": [] if set(plan.sizes) == set(_default_sizes(plan, sizes)) else sorted(set(plan.sizes)),
            "accelerator_types": list(dict.fromkeys(plan.accelerator_types)),
        }
        for plan in plans
    ]


def _default_sizes(plan: PlanOfJob, sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size % plan.degree == 0)
