"""The decisions of the autopilot, which are kept with the questions that they answer."""

from typing import Protocol

from gavel.types.autopilot import AutopilotDecision


class AutopilotStore(Protocol):
    """Decisions in the order of their numbers. What a call wrote is committed when it returns."""

    def decisions(self, *, before: int | None = None, limit: int = 100) -> tuple[AutopilotDecision, ...]:
        """Return the decisions with a number below `before`, newest first. Raises StoreUnavailable."""

    def decision(self, number: int) -> AutopilotDecision:
        """Return one decision. Raises NotFound."""

    def question(self, number: int) -> bytes:
        """Return the question of a decision, as it was given to `add`. Raises NotFound, also once it is forgotten."""

    def add(self, decision: AutopilotDecision, question: bytes, experience: bytes, *, keep_questions: int) -> None:
        """Add the next decision, with what was learned until it, and forget all but the newest questions.

        Raises Conflict if there is a decision with this number.
        """

    def experience(self) -> bytes:
        """Return what the newest decision has learned; empty if there is none."""
