"""The variables by which a process on a node uses its own accelerators, and no others."""

from collections.abc import Mapping

from gavel.backends.accelerators import CPU_TYPES, NO_GPU, capped_types
from gavel.backends.meeting import LEVEL_ZERO, ONEAPI
from gavel.backends.nodes.protocol import Slot
from gavel.child_processes import numeric_threads

VISIBLE = {
    "GPU": "CUDA_VISIBLE_DEVICES",
    "TPU": "TPU_VISIBLE_CHIPS",
    "neuron_cores": "NEURON_RT_VISIBLE_CORES",
    "HPU": "HABANA_VISIBLE_MODULES",
    "NPU": "ASCEND_RT_VISIBLE_DEVICES",
}


def environment_of(slot: Slot) -> Mapping[str, str]:
    """Return the variables that make a process use this accelerator and no other."""
    visible, device = VISIBLE.get(slot.resource), slot.device or str(slot.index)
    if slot.resource == "GPU" and slot.accelerator_type.startswith("intel"):
        return {ONEAPI: f"{LEVEL_ZERO}{device}"}
    if slot.resource == "GPU" and slot.accelerator_type.startswith("amd"):
        return {"HIP_VISIBLE_DEVICES": device}
    if visible is not None:
        return {visible: device}
    if slot.accelerator_type not in CPU_TYPES:  # to know which of them are here takes another Python
        return {}
    capped = capped_types().get(slot.accelerator_type)
    return {} if capped is None else {**NO_GPU, **numeric_threads(1), **capped}
