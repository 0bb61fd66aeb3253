"""Which environment variables a job may set: all but those by which Gavel tells it where it runs."""

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
# Reserved names that a job has from the service before it has a gang.
OF_JOB = (ARRAY_INDEX, GLOBAL_BATCH, MAX_GLOBAL_BATCH)
GANG_TIMEOUT = "GAVEL_GANG_TIMEOUT_S"


def reserved(name: str) -> str:
    """Return why a job may not set this variable; "" if it may. Of our own only GAVEL_GANG_TIMEOUT_S is free."""
    if name.startswith("GAVEL_") and name != GANG_TIMEOUT:
        return "names beginning with GAVEL_ are set by the service; choose another"
    return _RESERVED.get(name, "")
