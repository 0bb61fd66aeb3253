"""What `gavel doctor` reports of one thing."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `verdict`: fine, worth knowing, or to be mended."""

    about: str
    verdict: Literal["ok", "note", "problem"]
    text: str
