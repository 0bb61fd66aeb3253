"""A first guess, from data sheets, of how fast accelerator types are relative to each other, before any measurement.

Peak arithmetic (TFLOP/s, single precision, dense) and memory bandwidth (GB/s) from the vendors' data sheets. Training
is bound by one or the other, so the guess is their geometric mean; kinds.TYPE_ERROR says how little it is worth.
"""

import math

from gavel.types import AcceleratorType

PEAKS = {
    "k80": (4.4, 240.0),  # one of the two chips of a board, with boost
    "p100": (9.5, 732.0),
    "v100": (15.7, 900.0),
    "t4": (8.1, 320.0),
    "a10": (31.2, 600.0),
    "l4": (30.3, 300.0),
    "l40s": (91.6, 864.0),
    "a100": (19.5, 1555.0),
    "h100": (66.9, 3350.0),
    "h200": (66.9, 4800.0),
}


def log_peak(accelerator_type: AcceleratorType) -> float:
    """Return the logarithm of the guess relative to a P100; 0 for a type that is not in `PEAKS`."""
    own, base = PEAKS.get(accelerator_type.lower(), PEAKS["p100"]), PEAKS["p100"]
    return 0.5 * sum(math.log(mine / its) for mine, its in zip(own, base, strict=True))
