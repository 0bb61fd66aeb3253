"""How properties are tried, for every test: the same examples each time, but for a full run on one's own machine.

Hypothesis's own profile for CI, in which no example is judged by its time: others use the machine, too.
"""

import os
import signal

import pytest
from hypothesis import settings

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
IS_REPEATED = "CI" in os.environ or not IS_FULL

EXAMPLES = 100 if IS_FULL else 20  # of a property that states no number of its own

settings.register_profile("gavel", settings.get_profile("ci"), derandomize=IS_REPEATED, max_examples=EXAMPLES)
settings.load_profile("gavel")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a shell ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, in the small profile, what does not belong to it."""
    for item in items:
        if not (IS_FULL or is_small(item)):
            item.add_marker(pytest.mark.skip(reason="takes long: only with GAVEL_TEST_PROFILE=full"))


def is_small(item: pytest.Item) -> bool:
    """Return whether a test belongs to the small profile.

    It does not if it is marked `full`, or `full("id", ..)` with the id of its parameters, or `small("id", ..)` without.
    """
    case = item.callspec.id if hasattr(item, "callspec") else ""
    if any(not mark.args or case in mark.args for mark in item.iter_markers("full")):
        return False
    return all(case in mark.args for mark in item.iter_markers("small"))
