"""The clients' calls about the autopilot (docs/autopilot.md)."""

from collections.abc import Sequence
from typing import Any

from gavel.client.answers import Autopilot, AutopilotDecision, AutopilotVerification, Operation
from gavel.client.script import Items, Listing, Method, Script, asked, call, get, paged

DECIDES_S = 600.0  # seconds that a decision made again may take longer, since a process of its own computes it


class AutopilotCalls:
    """Calls about the autopilot, part of both clients."""

    @Method
    def autopilot(self) -> Script[Autopilot]:
        """Return what is in force and why, what the newest decision advises, and the regret so far."""
        return get("/v1/autopilot")

    @Method
    def set_autopilot(
        self,
        *,
        mode: str | None = None,
        goal: str | None = None,
        candidates: Sequence[str] | None = None,
        epoch_s: float | None = None,
        pinned: str | None = None,
        wait_s: int = 2,
    ) -> Script[Operation]:
        """Set what is given; the rest stays. `candidates`: the first is the safe one; none: the autopilot's own."""
        body: dict[str, Any] = {"mode": mode, "goal": goal, "epoch_s": epoch_s, "pinned": pinned}
        body["candidates"] = None if candidates is None else list(candidates)
        return asked("PUT", "/v1/autopilot", wait_s, json=body)

    @Listing
    def autopilot_decisions(self, *, before: int | None = None, limit: int | None = None) -> Items[AutopilotDecision]:
        """Yield decisions, newest first; at most `limit`, those before `before`."""
        given = {} if before is None else {"before": before}
        return paged("/v1/autopilot/decisions", "before", "next_before", limit, **given)

    @Method
    def autopilot_decision(self, number: int) -> Script[AutopilotDecision]:
        """Return one decision."""
        return get(f"/v1/autopilot/decisions/{number:d}")

    @Method
    def verify_autopilot_decision(self, number: int) -> Script[AutopilotVerification]:
        """Return whether a decision, made again from its stored inputs, is the same."""
        return call("POST", f"/v1/autopilot/decisions/{number:d}/verify", may_repeat=True, patience_s=DECIDES_S)
