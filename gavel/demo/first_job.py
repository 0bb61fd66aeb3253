"""A job before all others of a demo, with which everything is started."""

from gavel.client import Client
from gavel.demo.service import wait_until

FIRST = "first"  # its name
TERMINAL = {"COMPLETED", "FAILED", "CANCELLED"}
START_LIMIT_S, END_LIMIT_S = 30.0, 60.0


def run_first_job(operator: Client) -> None:
    """Run one job to its end, so that the clock of a run does not begin with the start of the solver."""
    wait_until(lambda: bool(operator.cluster()["workers"]), START_LIMIT_S)
    operator.submit(name=FIRST, argv=["true"], kind=f"operator/{FIRST}", total_steps=1)
    wait_until(lambda: all(each["state"] in TERMINAL for each in operator.jobs()), END_LIMIT_S)
