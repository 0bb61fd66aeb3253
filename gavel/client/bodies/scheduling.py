"""What the API is sent about scheduling.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict


class PolicyPut(TypedDict):
    """The policy to use from the next round on."""

    # A name of `GET /v1/policies`, with ?parameters and /parts, as fifo/backfill=false; null: that of the settings.
    policy: str | None
