"""Which environment variables a job may set: all but those by which Gavel tells it where it runs."""

from collections.abc import Mapping

_RANK = "it differs from rank to rank; Gavel sets it"
_TYPE = "it makes the accelerator type; Gavel sets it"
_RESERVED = {
    **dict.fromkeys(
        (
            *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
            *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
        ),
        _RANK,
    ),
    **dict.fromkeys(
        (
            *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
            *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"),
            *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"),
        ),
        _TYPE,
    ),
}
ARRAY_INDEX = "GAVEL_ARRAY_INDEX"
GLOBAL_BATCH, MAX_GLOBAL_BATCH = "GAVEL_GLOBAL_BATCH", "GAVEL_MAX_GLOBAL_BATCH"
PLAN = "GAVEL_PLAN"  # the name of the execution plan; each of its parameters follows, as in GAVEL_PLAN_TENSOR
GANG_TIMEOUT = "GAVEL_GANG_TIMEOUT_S"


def of_plan(name: str, parameters: Mapping[str, int]) -> dict[str, str]:
    """Return the variables by which the ranks know their execution plan."""
    return {PLAN: name, **{f"{PLAN}_{each.upper()}": str(value) for each, value in parameters.items()}}


def is_of_job(name: str) -> bool:
    """Return True for a reserved variable that a job has from the service before it has a gang."""
    return name in (ARRAY_INDEX, GLOBAL_BATCH, MAX_GLOBAL_BATCH, PLAN) or name.startswith(f"{PLAN}_")


def reserved(name: str) -> str:
    """Return why a job may not set this variable; "" if it may. Of our own only GAVEL_GANG_TIMEOUT_S is free."""
    if name.startswith("GAVEL_") and name != GANG_TIMEOUT:
        return "names beginning with GAVEL_ are set by the service; choose another"
    return _RESERVED.get(name, "")
