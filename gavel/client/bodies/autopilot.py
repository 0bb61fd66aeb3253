"""What the API is sent about autopilot.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class AutopilotPut(TypedDict):
    """What to set of the autopilot. What is left out, or null, stays as it is."""

    # off: no decisions; advise: decisions that change nothing; auto: they are in force; pin: `pinned` is in force.
    mode: NotRequired[Literal["off", "advise", "auto", "pin"] | None]
    # Measures with weights, and limits: `mean_jct`, or `mean_jct=2,money=1,longest_wait_s<=86400`.
    goal: NotRequired[str | None]
    # Compositions to choose from, `POLICY?parameter=value/PART=VALUE`, the safe one first. Empty: its own.
    candidates: NotRequired[Sequence[str] | None]
    epoch_s: NotRequired[float | None]  # Seconds from one decision to the next.
    pinned: NotRequired[str | None]  # The composition of mode `pin`.
