"""What the API answers about service.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Literal, NotRequired, TypedDict


class Health(TypedDict):
    """`ok`: the process answers; ready also means that the store answers and the scheduler is alive."""

    status: str
    note: NotRequired[str]  # How this service's scheduler ended lately, or why no gang is started now.


class Finding(TypedDict):
    """One thing that was looked at on the service's machine."""

    about: str
    verdict: Literal["ok", "note", "problem"]  # Fine, worth knowing, or to be mended.
    text: str
