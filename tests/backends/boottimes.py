"""The boottime of a machine, set by a test."""


class Boottime:
    """What `machine.boottime_s` returns while the fixture `boottime` is in use."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
