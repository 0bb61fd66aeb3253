"""All invariants of a run. I12, that everything ends, is the deadline of the run itself (gavel/faults/world.py)."""

from gavel.faults.invariants.accounted_time import AccountedTime
from gavel.faults.invariants.acknowledged_submits import AcknowledgedSubmits
from gavel.faults.invariants.allocations import Allocations
from gavel.faults.invariants.audit import Audit
from gavel.faults.invariants.base import Invariant
from gavel.faults.invariants.blameless_jobs import BlamelessJobs
from gavel.faults.invariants.charged_time import ChargedTime
from gavel.faults.invariants.granted_time import GrantedTime
from gavel.faults.invariants.jobs_after_others import JobsAfterOthers
from gavel.faults.invariants.monthly_limits import MonthlyLimits
from gavel.faults.invariants.nothing_left import NothingLeft
from gavel.faults.invariants.one_gang_per_worker import OneGangPerWorker
from gavel.faults.invariants.one_live_gang import OneLiveGang
from gavel.faults.invariants.operations import Operations
from gavel.faults.invariants.progress import Progress
from gavel.faults.invariants.prompt_hand_over import PromptHandOver
from gavel.faults.invariants.replicas import Replicas
from gavel.faults.invariants.reservations import Reservations
from gavel.faults.invariants.rounds import Rounds
from gavel.faults.invariants.transitions import Transitions
from gavel.faults.invariants.views import Views
from gavel.faults.invariants.whole_gangs import WholeGangs


def all_invariants() -> tuple[Invariant, ...]:
    """Return one of each, for one run."""
    return (
        OneGangPerWorker(),
        WholeGangs(),
        AcknowledgedSubmits(),
        OneLiveGang(),
        Progress(),
        NothingLeft(),
        Transitions(),
        Rounds(),
        Allocations(),
        PromptHandOver(),
        Audit(),
        Operations(),
        BlamelessJobs(),
        GrantedTime(),
        Replicas(),
        Views(),
        Reservations(),
        AccountedTime(),
        ChargedTime(),
        JobsAfterOthers(),
        MonthlyLimits(),
    )
