"""What a job needs of workers and nodes, in words."""

from collections.abc import Callable, Iterable, Sequence

from gavel.client import Event, Job
from gavel.client.answers.jobs import Residence
from gavel.client.answers.why_and_what_if import PlanSpeed
from gavel.code_tree import megabytes

CHANGES_SHOWN = 8


def worker_needs(cpu_cores: int, memory_bytes: int) -> str:
    """Return what each worker of a job gets of its node: CPU cores, and memory if a limit was stated."""
    memory = f", {megabytes(memory_bytes)} of memory" if memory_bytes else ""
    return f"{cpu_cores} CPU {'core' if cpu_cores == 1 else 'cores'}{memory}"


def worker_rows(each: Job) -> list[tuple[str, str]]:
    """Return how many workers the gang of an elastic job may have, what each needs, and the region, with names."""
    sizes = ", ".join(map(str, each["sizes"]))
    grows = f", up to {each['max_global_batch']} in an update" if each["max_global_batch"] else ""
    step = f"{each['global_batch']} samples in each step{grows}"
    elastic = f"{each['scale_factor']} now, of {sizes}; {step}" if sizes else ""
    return [
        ("size", elastic),
        ("plan", _plan_in_words(each)),
        ("each worker needs", worker_needs(each["cpu_cores"], each["memory_bytes"])),
        *region_rows(each),
    ]


def _plan_in_words(each: Job) -> str:
    """The plan in force, and the sizes at which each plan holds."""
    plans = "; ".join(f"{plan['name']} at {', '.join(map(str, plan['sizes']))}" for plan in each["plans"])
    return f"{each['plan']} now, of {plans}" if plans else ""


def plan_table(speeds: Iterable[PlanSpeed]) -> str:
    """Return the speeds of a job under its plans, a line for each accelerator type."""
    lines: dict[str, list[str]] = {}
    for each in speeds:
        rate = each["note"] if each["steps_per_s"] is None else f"{each['steps_per_s']:.3g} steps/s"
        lines.setdefault(each["accelerator_type"], []).append(f"{each['plan']} {rate}")
    return "\n".join(f"{name}: {', '.join(speeds)}" for name, speeds in lines.items())


def region_rows(each: Job) -> list[tuple[str, str]]:
    """Return where the data set of the job is, its region, why it is there, and what moves have cost, with names."""
    own = each["residence"]
    data = f"{megabytes(each['data_bytes'])} in {each['data_region']}" if each["data_region"] else ""
    return [("data set", data), ("region", f"{own['region']}. {own['why']}{_moves(own)}" if own else "")]


def _moves(own: Residence) -> str:
    cost = f" for {own['egress_usd']:.2f} USD" if own["egress_usd"] else ""
    return f" In {own['moves']} moves {megabytes(own['egress_bytes'])} were copied{cost}." if own["moves"] else ""


def changes_so_far(events: Sequence[Event], instant: Callable[[float], str]) -> dict[str, str]:
    """Return the sizes and the plans that the gangs of a job had, with names."""
    return {"sizes so far": _size_changes(events, instant), "plans so far": _plan_changes(events, instant)}


def _size_changes(events: Iterable[Event], instant: Callable[[float], str]) -> str:
    """Return the sizes that the gangs of a job had, the last of them, each with the instant of its first gang."""
    changes: list[tuple[int, float]] = []
    for event in events:
        size = event["gang_size"]
        if size and (not changes or changes[-1][0] != size):
            changes.append((size, event["at_s"]))
    return ", ".join(f"{size} from {instant(at_s)}" for size, at_s in changes[-CHANGES_SHOWN:])


def _plan_changes(events: Iterable[Event], instant: Callable[[float], str]) -> str:
    """Return the execution plans that the gangs of a job had, the last of them, each with the instant of its first."""
    changes: list[tuple[str, float]] = []
    for event in events:
        plan = event["plan"]
        if plan and (not changes or changes[-1][0] != plan):
            changes.append((plan, event["at_s"]))
    return ", ".join(f"{plan} from {instant(at_s)}" for plan, at_s in changes[-CHANGES_SHOWN:])


def how_long_it_stays(each: Job, instant: Callable[[float], str]) -> str:
    """Return whether rounds may stop the job, and how long a session lasts."""
    if (service := each["service"]) is not None:
        have = f"{service['ready']} of {service['replicas']} replicas are ready"
        return f"no: a service, version {service['version']}, of which {have}"
    if each["longest_s"] is None:
        return "yes" if each["preemptible"] else "no"
    idle = "" if each["idle_s"] is None else f", or {each['idle_s']:g} s after its last use"
    begin = "its start"
    if each["reserved_at_s"] is not None:
        begin = (
            f"{instant(each['reserved_at_s'])}, from when {each['scale_factor']} {each['reserved_type']} are reserved"
        )
    share = "" if each["accelerator_share"] == 1 else "; another session, or a training, may run on its accelerators"
    return f"no: an interactive session, which ends {each['longest_s']:g} s after {begin}{idle}{share}"


def where_it_runs(each: Job) -> str:
    """Return what the job needs of accelerators and nodes, as it was stated; "" if it needs nothing."""
    memory_bytes = each["accelerator_memory_bytes"]
    labels = ", ".join(f"{key}={value}" for key, value in each["node_labels"].items())
    parts = (
        ", ".join(each["accelerator_types"]),
        f"accelerators with {megabytes(memory_bytes)} of memory" if memory_bytes else "",
        f"nodes with {labels}" if labels else "",
        f"nodes with one value of {each['topology_label']}" if each["topology_label"] else "",
        f"regions {', '.join(each['regions'])}" if each["regions"] else "",
    )
    return "; ".join(part for part in parts if part)
