"""How properties are tried, for every test: the same examples each time, but for a full run on one's own machine.

Hypothesis's own profile for CI, in which no example is judged by its time: others use the machine, too.
"""

import os
import signal

import pytest
from hypothesis import settings

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
IS_REPEATED = "CI" in os.environ or not IS_FULL

settings.register_profile("gavel", settings.get_profile("ci"), derandomize=IS_REPEATED)
settings.load_profile("gavel")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a shell ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `full` run in the full profile only."""
    for item in items:
        if item.get_closest_marker("full") and not IS_FULL:
            item.add_marker(pytest.mark.skip(reason="takes long: only with GAVEL_TEST_PROFILE=full"))
