"""What the API is sent about nodes.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict


class DrainRequest(TypedDict):
    """How many seconds the node has to become empty."""

    window_s: float  # Seconds until no lease may be left there; gangs checkpoint before they stop.
