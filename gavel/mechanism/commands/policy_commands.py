"""The command of operators for the policy: another one from the next round on."""

from gavel.errors import InvalidRequest
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation


def switch(tick: Tick, command: Operation) -> Outcome:
    """Solve the next round by `policy` of the body, a name with ?parameters; empty: by that of the settings again.

    The caller checks that there is such a policy: one that cannot be loaded falls back like any failed solve.
    """
    wanted = command.body.get("policy")
    if not isinstance(wanted, str):
        raise InvalidRequest("policy", "give the name of a policy, or an empty text for that of the settings")
    before = {"policy": tick.snapshot.policy if tick.policy is None else tick.policy}
    return Outcome(result={"policy": wanted}, policy=wanted, before=before, after={"policy": wanted})
