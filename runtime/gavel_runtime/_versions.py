"""Which versions of a training library its adapter was tested with, and the warning for others."""

import re
import warnings

TESTED = {
    "accelerate": "1.15",
    "jax": "0.10",
    "keras": "3.15",
    "lightning": "2.6",
    "orbax-checkpoint": "0.12",
    "torch": "2.13",
    "transformers": "5.23",
}


def warn_if_untested(library: str, version: str) -> None:
    """Warn if the adapter was tested with another major version of the library, or with an older one."""
    if _release(version) < _release(TESTED[library]) or _release(version)[0] != _release(TESTED[library])[0]:
        warnings.warn(
            f"gavel_runtime was tested with {library} {TESTED[library]}, and this is {version}. If the script does not "
            f"continue as it should after a preemption (try: gavel run), install {library}=={TESTED[library]}.*",
            stacklevel=3,
        )


def _release(version: str) -> tuple[int, ...]:
    """Return (major, minor) of a version; (0, 0) for a text that is none."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
