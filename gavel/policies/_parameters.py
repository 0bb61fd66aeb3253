"""What a parameter of a policy may be, beyond a switch, a choice, or a positive number."""

from typing import Annotated

AnySign = Annotated[float, "any sign"]
"""A finite number of any sign: annotate a field with it; one of type `float` takes positive numbers only."""

TierObjectives = Annotated[str, "tier:objective,.."]
"""Objectives of tiers whose own is `auto`, as text: `gold:speed,free:fifo`."""
