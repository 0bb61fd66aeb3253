"""The error of a run in which an invariant does not hold."""


class Violation(Exception):
    """An invariant does not hold; `name` is its name, the message says where."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
