"""Two small numeric kernels, timed; run by `gavel.backends.probe` as `python kernels.py CPU,CPU SECONDS`.

Prints "ready", waits for a line, and prints {kernel: runs per second} as JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable

WIDTH = 256
LENGTH = 1 << 15


def rate(kernel: Callable[[], object], seconds: float) -> float:
    """Return runs per second of wall time, measured over at least so many seconds."""
    kernel()
    runs = 0
    began_s = time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        kernel()
        runs += 1
    return runs / elapsed_s


def main(cpus: str, seconds: str) -> None:
    """Pin this process to its cores, load the kernels, and measure once a line was read."""
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    import numpy as np

    left = np.full((WIDTH, WIDTH), 0.5, dtype=np.float32)
    values = np.linspace(-1.0, 1.0, LENGTH, dtype=np.float32)
    kernels: dict[str, Callable[[], object]] = {
        "matmul": lambda: left @ left,
        "elementwise": lambda: np.tanh(np.exp(values)),
    }
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({name: rate(kernel, float(seconds)) for name, kernel in kernels.items()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
