"""What an operator asks of the policy: another one from the next round on."""

from gavel.errors import InvalidRequest
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation


def switch(tick: Tick, command: Operation) -> Outcome:
    """The next round is solved by `policy` of the body, a name with ?parameters; empty: by that of the settings again.

    Whether there is such a policy is for the caller to check: what cannot be solved falls back as any failed solve.
    """
    wanted = command.body.get("policy")
    if not isinstance(wanted, str):
        raise InvalidRequest("policy", "give the name of a policy, or an empty text for that of the settings")
    before = {"policy": tick.snapshot.policy if tick.policy is None else tick.policy}
    return Outcome(result={"policy": wanted}, policy=wanted, before=before, after={"policy": wanted})
