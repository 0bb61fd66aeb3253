"""Commands from the API to the scheduler: a literal table from the kind of a command to the function that decides it.

How to add a kind: write its handler, pure as everything here, in a file of its own or one that knows the subject, and
name it in HANDLERS. A route makes the command durable with `store.add_command("kind", subject=.., body=.., by=..,
now_s=..)` and answers with `api.operations.answer`. Each tick hands every pending command to its handler, oldest first,
until the operation ends. A handler reads the tick, changes nothing, and answers one of three:

* `Outcome(result={..}, nodes=.., jobs=..)`: done. Result and changes are written in the tick's one commit.
* `Outcome(is_pending=True, result={..}, instructions=..)`: the note in `result` is committed, then the instructions go
  to the backend, and the handler is asked again at once with its note in `command.result`. A handler that instructs
  the backend ends its operation when the observation (`tick.seen`) shows the effect. After a crash in between it is
  asked again, so instructions must do no harm twice: they carry a generation that receivers compare.
* an error of gavel/errors.py, raised: the operation failed, and whoever asked is told with that error.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gavel.errors import GavelError, InvalidRequest
from gavel.mechanism.commands import (
    autopilot_commands,
    infeasibility_commands,
    node_commands,
    policy_commands,
    resource_commands,
)
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation, OperationState

Handler = Callable[[Tick, Operation], Outcome]

HANDLERS: Mapping[str, Handler] = {
    "autopilot.set": autopilot_commands.write,
    "autopilot.switch": autopilot_commands.switch,
    "infeasible.clear": infeasibility_commands.clear,
    "node.cordon": node_commands.cordon,
    "node.uncordon": node_commands.uncordon,
    "node.drain": node_commands.drain,
    "policy.switch": policy_commands.switch,
    "resources.set": resource_commands.write,
}


def apply_commands(tick: Tick) -> None:
    """Apply every pending command by its handler; the tick then has what each decided."""
    for command in tick.snapshot.commands:
        try:
            tick.take(command, _handler(command)(tick, command))
        except GavelError as error:
            tick.operations.append(_failed(command, error, tick.now_s))


def _handler(command: Operation) -> Handler:
    if command.kind not in HANDLERS:
        raise InvalidRequest("kind", f"this scheduler knows no {command.kind}; it knows {', '.join(sorted(HANDLERS))}")
    return HANDLERS[command.kind]


def _failed(command: Operation, error: GavelError, now_s: float) -> Operation:
    blames = (error.field, error.message) if isinstance(error, InvalidRequest) else ("", str(error))
    return replace(
        command,
        state=OperationState.FAILED,
        error_field=blames[0],
        error=blames[1],
        error_kind=type(error).__name__,
        finished_at_s=now_s,
    )
