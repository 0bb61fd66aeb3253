"""Clients and operators: each request is sent until it is acknowledged, and the ledger notes what was."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from gavel.errors import GavelError, InvalidRequest, StoreUnavailable
from gavel.faults.clocks import EPOCH_S, MachineClock
from gavel.faults.crash_points import ActKind, CrashCounter
from gavel.faults.ledger import Ledger
from gavel.faults.scenario import COMPOSITIONS, NO_CAP, OF_ROUNDS, PLENTY_H, ClientRequest, Program, Request, Scenario
from gavel.faults.schedule import Schedule
from gavel.faults.specs import spec_of
from gavel.ports import JobEdit
from gavel.store.samples import SimulationStore
from gavel.types import JobId, JobSpec, Tier

RETRY_S = 2.0
OF_NODES = (Request.CORDON, Request.UNCORDON, Request.DRAIN, Request.RESOURCES)
HOLDS_UP = (Request.PAUSE, Request.CORDON, Request.DRAIN)
WAITS_S = 7.0  # until a request is sent that waits for a commit
OPERATOR = "operator"
DRAIN_WINDOW_S = 30.0
TTL_S = 60.0


class Clients:
    """Sends the requests of a scenario to the store, as the API does for them."""

    def __init__(
        self,
        store: SimulationStore,
        scenario: Scenario,
        schedule: Schedule,
        ledger: Ledger,
        *,
        clock: MachineClock,
        is_store_down: Callable[[], bool],
        loses_answer: Callable[[], bool],
        crashes: CrashCounter,
    ) -> None:
        self._store, self._scenario, self._programs = store, scenario, scenario.programs
        self._schedule, self._ledger, self._clock = schedule, ledger, clock
        self._chance = Random(f"clients-{scenario.seed}")  # noqa: S311 - not for secrets
        self._waiting: list[ClientRequest] = []
        self._refused: set[int] = set()  # jobs
        self._is_closed = False
        self._is_store_down, self._loses_answer, self._crashes = is_store_down, loses_answer, crashes

    def create_tiers(self, weights: Mapping[str, float]) -> None:
        """Create tiers with these weights, as an operator does before the first job."""
        for name, weight in weights.items():
            tier = Tier(name=name, weight=weight)
            self._store.put_tier(tier, expected_version=None, by=OPERATOR, now_s=self._clock.wall_s())

    def come(self, request: ClientRequest) -> None:
        """Send the request now, or in the middle of the next commit of a scheduler, if there is one soon."""
        if self._chance.random() < 0.5:
            self.send(request)
            return
        self._waiting.append(request)
        self._schedule.after(WAITS_S, self.send_waiting)

    def close(self) -> None:
        """Ask for nothing any more that keeps jobs from running."""
        self.send_waiting()
        self._is_closed = True

    def send_waiting(self) -> None:
        """Send what waits for the next commit."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self.send(request)

    def send(self, request: ClientRequest) -> None:
        """Send the request, again and again until it is answered."""
        if self._is_closed and _holds_up(request):
            return
        if request.kind is Request.SUBMIT:
            self._ledger.attempted.add(f"key-{request.target}")
        try:
            if self._is_store_down():
                raise StoreUnavailable("the database cannot be used now")
            self._fail_if_struck(is_done=False)
            acknowledge = self._perform(request)
            self._fail_if_struck(is_done=True)
            if self._loses_answer():
                raise StoreUnavailable("the answer was lost")
        except StoreUnavailable:
            self._schedule.after(RETRY_S, lambda: self.send(request))
        except GavelError as error:
            self._schedule.note(f"client {request.kind} {request.target} refused {type(error).__name__}")
        else:
            acknowledge()
            self._schedule.note(f"client {request.kind} {request.target}")

    def _fail_if_struck(self, *, is_done: bool) -> None:
        if self._crashes.strikes(ActKind.REQUEST, is_done=is_done):
            raise StoreUnavailable("the API's process died")

    def _perform(self, request: ClientRequest) -> Callable[[], None]:
        match request.kind:
            case Request.SUBMIT:
                return self._submit(request)
            case Request.TIER:
                return self._put_tier(weight=request.amount)
            case Request.BUDGET:
                return self._put_tier(accelerator_hours_per_month=request.amount)
            case Request.LIMITS:
                guarantee = request.amount / 2 if request.amount < NO_CAP else 0.0
                return self._put_tier(cap=request.amount, guarantee=guarantee)
            case kind if kind in (*OF_NODES, *OF_ROUNDS):
                return self._command(request)
            case _:
                return self._ask(request)

    def _submit(self, request: ClientRequest) -> Callable[[], None]:
        key = f"key-{request.target}"
        program = self._programs[request.target]
        spec = spec_of(program, request.target)
        if program.reserved_after_s is not None:
            spec = replace(spec, reserved_at_s=EPOCH_S + request.at_s + program.reserved_after_s)
        try:
            spec = replace(spec, after=self._after(program))
            given = self._store.submit(spec, key=key, body_hash=key, now_s=self._clock.wall_s())
        except InvalidRequest:
            self._ledger.attempted.discard(key)
            self._refused.add(request.target)
            raise
        return lambda: self._ledger.acknowledge_submit(key, given.job.id)

    def _after(self, program: Program) -> tuple[JobId, ...]:
        if program.after in self._refused:
            raise InvalidRequest("after", "is a job that was refused")
        is_asked_for = any(
            each.kind is Request.SUBMIT and each.target == program.after for each in self._scenario.requests
        )
        return (self._job_id(program.after),) if program.after is not None and is_asked_for else ()

    def _job_id(self, job: int) -> JobId:
        job_id = self._ledger.submitted.get(f"key-{job}")
        if job_id is None:
            raise StoreUnavailable("its user waits for the answer of the submit first")
        return job_id

    def _ask(self, request: ClientRequest) -> Callable[[], None]:
        key, now_s = f"key-{request.target}", self._clock.wall_s()
        if key not in self._ledger.attempted:
            return lambda: None
        job_id = self._job_id(request.target)
        action = self._asked(job_id, request, now_s)
        return lambda: self._note(job_id, action)

    def _asked(self, job_id: str, request: ClientRequest, now_s: float) -> str:
        store = self._store
        before = store.job(job_id)
        if request.kind is Request.CANCEL:
            self._ledger.cancellable.add(job_id)
            after = store.request_cancel(job_id, now_s=now_s)
            action = "cancel.requested"
        elif request.kind in (Request.PAUSE, Request.RESUME):
            is_paused = request.kind is Request.PAUSE
            after = store.request_pause(job_id, is_paused=is_paused, now_s=now_s)
            action = "pause.requested" if is_paused else "job.resumed"
        else:
            after = store.edit_job(job_id, _edit(request, before.spec), expected_version=None, now_s=now_s)
            action = "job.edited"
        return action if after.version != before.version else ""

    def _note(self, job_id: str, action: str) -> None:
        if action == "cancel.requested":
            self._ledger.cancelled.add(job_id)
        if action:
            self._ledger.requests.append((f"job/{job_id}", action))

    def _put_tier(self, **changes: Any) -> Callable[[], None]:
        stored = {tier.name: tier for tier in self._store.tiers()}
        tier = stored.get("gold", Tier(name="gold", version=0))
        changed = replace(tier, **changes)
        version = tier.version if "gold" in stored else None
        self._store.put_tier(changed, expected_version=version, by=OPERATOR, now_s=self._clock.wall_s())
        return lambda: self._ledger.requests.append(("tier/gold", "tier.changed"))

    def _command(self, request: ClientRequest) -> Callable[[], None]:
        node = "" if request.kind in OF_ROUNDS else self._scenario.name_of(request.target)
        kind, body = _command_of(request, node)
        operation = self._store.add_command(
            kind, subject=f"node/{node}", body=body, by=OPERATOR, now_s=self._clock.wall_s()
        )
        return lambda: self._ledger.operations.append(operation.id)


def _holds_up(request: ClientRequest) -> bool:
    """Return True if jobs would wait for as long as what it asks for is in force."""
    plenty = {Request.BUDGET: PLENTY_H, Request.LIMITS: NO_CAP}.get(request.kind, 0.0)
    return request.kind in HOLDS_UP or request.amount < plenty


def _command_of(request: ClientRequest, node: str) -> tuple[str, dict[str, object]]:
    """Return the kind and the body of an operator's command, or of the autopilot's."""
    match request.kind:
        case Request.CORDON:
            return "node.cordon", {}
        case Request.UNCORDON:
            return "node.uncordon", {}
        case Request.DRAIN:
            return "node.drain", {"window_s": DRAIN_WINDOW_S}
        case Request.POLICY:
            return "policy.switch", {"policy": COMPOSITIONS[request.target]}
        case Request.PIN if request.target:
            return "autopilot.set", {"mode": "pin", "pinned": COMPOSITIONS[request.target]}
        case Request.PIN:
            return "autopilot.set", {"mode": "auto"}
        case Request.DECISION:
            return "autopilot.switch", {"policy": COMPOSITIONS[request.target], "decision": 0, "reason": "simulated"}
        case _:
            return "resources.set", {"resources": [_resource(node, request.amount)]}


def _edit(request: ClientRequest, spec: JobSpec) -> JobEdit:
    match request.kind:
        case Request.REPLICAS:
            return JobEdit(replicas=int(request.amount))
        case Request.VERSION:
            return JobEdit(program={"argv": (*spec.argv[:2], f"at {request.at_s:.1f}")})
        case Request.EXTEND:
            return JobEdit(longest_s=request.amount)
        case _:
            return JobEdit(weight=request.amount)


def _resource(node: str, capacity: float) -> dict[str, object]:
    return {"owner": "app", "name": "cache", "capacity": int(capacity), "nodes": [node], "ttl_s": TTL_S}
