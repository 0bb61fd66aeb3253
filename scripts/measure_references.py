"""Measures the catalogue on every accelerator type of this machine, for gavel/estimator/references.json.

usage: .venv/bin/python -m scripts.measure_references [SECONDS]          (about a minute; on an idle machine)
"""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gavel.cli.profile import measured
from workloads.catalogue import CATALOGUE, argv_of

TARGET = Path(__file__).parents[1] / "gavel" / "estimator" / "references.json"


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    rates: list[dict[str, Any]] = []
    for kind in CATALOGUE:
        for row in measured(argv_of(kind), seconds):
            print(f"{kind:14}{row.accelerator_type:10}{row.steps_per_s:10.4g} steps/s, {row.measurements} reports")
            rates.append(
                {
                    "kind": kind,
                    "scale_factor": 1,
                    "accelerator_type": row.accelerator_type,
                    "steps_per_s": round(row.steps_per_s, 4),
                    "measurements": row.measurements,
                }
            )
    TARGET.write_text(json.dumps({"conditions": conditions(seconds), "rates": rates}, indent=1) + "\n")
    print(f"wrote {TARGET}")
    return 0


def conditions(seconds: float) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "seconds_per_kind": seconds,
        "workers": "one rank each, all of them training at once",
        "measured": datetime.now(UTC).date().isoformat(),
    }


def cpu_name() -> str:
    """As the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
