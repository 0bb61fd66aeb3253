"""The command that clears marks of accelerator types on which jobs did not fit."""

from gavel.errors import NotFound
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation


def clear(tick: Tick, command: Operation) -> Outcome:
    """Forget the mark `id` of the body, so that its jobs are given the type again. Raises NotFound if there is none."""
    wanted = command.body.get("id")
    mark = next((each for each in tick.infeasible if each.id == wanted), None)
    if mark is None:
        raise NotFound(f"no mark {wanted} of an infeasible accelerator type")
    left = tuple(each for each in tick.infeasible if each is not mark)
    what = {"user": mark.user, "kind": mark.kind, "scale_factor": mark.scale_factor}
    before = {**what, "accelerator_type": mark.accelerator_type, "evidence": mark.evidence}
    return Outcome(result={"id": mark.id}, infeasible=left, before=before, after={"cleared": mark.id})
