"""Nouns to JSON and back; floats and arrays come back bit for bit, infinities included. Never pickle.

`warm_start` may hold JSON values and numeric arrays; its tuples come back as lists.
"""

import base64
import json
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json

from gavel.errors import StoreUnavailable
from gavel.ports import ThroughputEstimate
from gavel.types import (
    ApplicationResource,
    Cluster,
    InfeasibleType,
    Job,
    JobSpec,
    NodeStatus,
    PlanInputs,
    RoundPlan,
    RoundRecord,
    StartupTimes,
    in_plan,
    in_region,
    in_size,
)
from gavel.types.autopilot import AutopilotDecision, AutopilotSetting
from gavel.types.copying import defaults_of, with_shared_defaults, without_defaults

Json = Any
_JOB = TypeAdapter(Job)
_SPEC = TypeAdapter(JobSpec)
_AUTOPILOT = TypeAdapter(AutopilotSetting)
_AUTOPILOT_DECISION = TypeAdapter(AutopilotDecision)
_PLAN = TypeAdapter(RoundPlan)
_CLUSTER = TypeAdapter(Cluster)
_NODES = TypeAdapter(tuple[NodeStatus, ...])
_STARTUP_TIMES = TypeAdapter(tuple[StartupTimes, ...])
_INFEASIBLE = TypeAdapter(tuple[InfeasibleType, ...])
_RESOURCES = TypeAdapter(tuple[ApplicationResource, ...])
_THROUGHPUTS = TypeAdapter(tuple[ThroughputEstimate, ...])
SPECS_KEPT = 1 << 14
PLANS_KEPT = 64  # a page shows forty
_PLANS: dict[bytes, RoundPlan] = {}  # those that were read or written last, by what they are packed
_PLANS_LOCK = threading.Lock()
_JOB_COLUMNS = {"id", "spec", "state", "submitted_at_s", "steps_done", "generation", "version"}
_JOB_COLUMNS |= {"cancel_requested", "pause_requested"}
_JOB_PROGRESS = tuple(item for item in defaults_of(Job).items() if item[0] not in _JOB_COLUMNS)


# --- JSON, compressed or not ------------------------------------------------------------------------------------


def dump(value: Any) -> str:
    """Return compact JSON text. Characters that no database takes (lone surrogates, from damaged logs) become `?`."""
    return _encoded(value).decode()


def plain_text(text: str) -> str:
    """Return `text` without what PostgreSQL or UTF-8 refuse: NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _pack(value: Any) -> bytes:
    return zlib.compress(_encoded(value), level=1)


def _unpack(body: bytes) -> Json:
    return json.loads(zlib.decompress(body), object_hook=_restore)


def pack_value(value: Any) -> bytes:
    """Return any value of nouns, plain values and numeric arrays, packed: JSON, compressed."""
    return _pack(value)


def unpack_value(body: bytes) -> Json:
    """Return the plain values and arrays of a packed value; its nouns come back as mappings of their fields."""
    return _unpack(body)


def _plain(value: Any) -> Json:
    """Return a value of a type that the json module does not know, as one that it knows."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"only numeric arrays can be stored, not {value.dtype}")
        body = base64.b64encode(value.tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "base64": body}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: getattr(value, name) for name in _names(kind)}
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


_ENCODER = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"))


def _encoded(value: Any) -> bytes:
    """Return compact JSON in UTF-8; of a round of 100,000 jobs in a sixth of the time of the json module."""
    try:
        return to_json(value, fallback=_plain, inf_nan_mode="constants")
    except PydanticSerializationError:  # a lone surrogate, which the json module takes, or what cannot be stored
        return _ENCODER.encode(value).encode("utf-8", "replace")


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _restore(item: dict[str, Any]) -> Any:
    if item.keys() != {"dtype", "shape", "base64"}:
        return item
    array = np.frombuffer(base64.b64decode(item["base64"]), dtype=np.dtype(item["dtype"]))
    return array.reshape(item["shape"]).copy()  # a buffer's own array is read-only, which some solvers refuse


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Raise StoreUnavailable if the block cannot decode a row: a damaged row must not look like an absent job."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise StoreUnavailable(f"{what} cannot be read, the database is damaged: {error}") from error


# --- jobs -------------------------------------------------------------------------------------------------------


def progress(job: Job) -> str:
    """Return the fields of a job that the scheduler writes and that have no column of their own.

    A field that has its default is left out, as one is that an older release did not know: of a job that waits that is
    nearly all of them.
    """
    own = job.__dict__  # which may lack what is at its default already
    given = ((name, own[name], default) for name, default in _JOB_PROGRESS if name in own)
    return dump({name: value for name, value, default in given if value is not default and value != default})


def job(row: Any) -> Job:
    """Return the job in a row of the table `jobs`."""
    with readable(f"job {row.id}"):
        written = from_json(row.progress)
        read: Job = _JOB.validate_python(
            written
            | {
                "id": row.id,
                "spec": _spec(
                    row.spec,
                    written.get("size"),
                    written.get("plan", ""),
                    written.get("residence", {}).get("region", ""),
                ),
                "state": row.state,
                "submitted_at_s": row.submitted_at_s,
                "steps_done": row.steps_done,
                "generation": row.generation,
                "version": row.version,
                "cancel_requested": row.cancel_requested,
                "pause_requested": row.pause_requested,
            }
        )
        return without_defaults(read)


@lru_cache(maxsize=SPECS_KEPT)
def _spec(text: str, size: int | None, plan: str, region: str) -> JobSpec:
    """Return a specification in this size, plan and region, the very same one for the same: of a job that runs it is
    read with each report.
    """
    return with_shared_defaults(in_region(in_plan(in_size(_SPEC.validate_json(text), size), plan), region))


# --- rounds -----------------------------------------------------------------------------------------------------


class _Whole(BaseModel):
    """Decodes a stored round by the types of its fields, arrays among them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    record: RoundRecord


def pack_round(record: RoundRecord) -> tuple[bytes, bytes]:
    """Return the plan and the decision of a round, packed; the decision is every field of the record but the plan."""
    decision = {name: getattr(record, name) for name in _names(RoundRecord) if name != "plan"}
    lag = [(job_id, name, rounds) for (job_id, name), rounds in record.lag_rounds.items()]
    return pack_plan(record.plan), _pack(decision | {"lag_rounds": lag})


def plan(row: Any) -> RoundPlan:
    """Return the plan in a row of the table `rounds`."""
    with readable(f"round {row.round_index}"):
        return _PLANS.get(row.plan) or _kept(row.plan, _PLAN.validate_python(_unpack(row.plan)))


def _kept(body: bytes, plan: RoundPlan) -> RoundPlan:
    """Return the plan, kept with what it is packed, and of the same round no more than the one before it.

    A tick may amend the plan in force, which compares it with the one before; the next tick reads it.
    """
    with _PLANS_LOCK:
        for old in [each for each, kept in _PLANS.items() if kept.round_index == plan.round_index][:-1]:
            del _PLANS[old]
        _PLANS[body] = plan
        if len(_PLANS) > PLANS_KEPT:
            del _PLANS[next(iter(_PLANS))]
    return plan


def record(row: Any) -> RoundRecord:
    """Return a whole round from a row of the table `rounds`."""
    with readable(f"round {row.round_index}"):
        decision = _unpack(row.decision)
        decision["lag_rounds"] = {(job_id, name): rounds for job_id, name, rounds in decision["lag_rounds"]}
        for tier in decision["problem"]["tiers"]:
            tier.setdefault("within_user", "equal")  # of a round that was decided before tiers said so
        if not _has_all(decision.get("inputs"), PlanInputs):
            decision["inputs"] = None
        return _Whole.model_validate({"record": decision | {"plan": plan(row)}}).record


def _has_all(item: Any, kind: Any) -> bool:
    """Return True if no field is missing: a round that an older version stored cannot be decided again."""
    return isinstance(item, dict) and item.keys() >= set(_names(kind))


# --- documents --------------------------------------------------------------------------------------------------


def pack_plan(plan: RoundPlan) -> bytes:
    """Return a plan, packed."""
    body = _pack(plan)
    _kept(body, plan)
    return body


def pack_document(
    value: Cluster
    | tuple[ThroughputEstimate, ...]
    | tuple[NodeStatus, ...]
    | tuple[ApplicationResource, ...]
    | tuple[StartupTimes, ...]
    | tuple[InfeasibleType, ...]
    | AutopilotSetting
    | str,
) -> bytes:
    """Return a packed document: a value that is always stored and replaced as a whole."""
    return _pack(value)


@lru_cache(maxsize=2)
def cluster(body: bytes | None) -> Cluster:
    """Return the stored cluster, the very same one for the same bytes; empty if there is none."""
    with readable("the cluster"):
        return Cluster() if body is None else _CLUSTER.validate_python(_unpack(body))


@lru_cache(maxsize=2)
def throughputs(body: bytes | None) -> tuple[ThroughputEstimate, ...]:
    """Return the stored table of throughputs, the very same one for the same bytes; empty if there is none."""
    with readable("the table of throughputs"):
        return () if body is None else _THROUGHPUTS.validate_python(_unpack(body))


@lru_cache(maxsize=2)
def startup_times(body: bytes | None) -> tuple[StartupTimes, ...]:
    """Return the stored times of start-ups, the very same ones for the same bytes; empty if none is stored."""
    with readable("the times of start-ups"):
        return () if body is None else _STARTUP_TIMES.validate_python(_unpack(body))


@lru_cache(maxsize=2)
def infeasible(body: bytes | None) -> tuple[InfeasibleType, ...]:
    """Return the stored marks of infeasible types, the very same ones for the same bytes; empty if none is stored."""
    with readable("the marks of infeasible accelerator types"):
        return () if body is None else _INFEASIBLE.validate_python(_unpack(body))


@lru_cache(maxsize=2)
def nodes(body: bytes | None) -> tuple[NodeStatus, ...]:
    """Return the stored status of each node, the very same ones for the same bytes; empty if none is stored."""
    with readable("the list of nodes"):
        return () if body is None else _NODES.validate_python(_unpack(body))


def resources(body: bytes | None) -> tuple[ApplicationResource, ...]:
    """Return the ephemeral resources that applications requested; empty if there are none."""
    with readable("the ephemeral resources"):
        return () if body is None else _RESOURCES.validate_python(_unpack(body))


def policy(body: bytes | None) -> str:
    """Return the policy to which an operator switched; empty if nobody did."""
    with readable("the policy"):
        return "" if body is None else str(_unpack(body))


# --- the autopilot ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def autopilot(body: bytes | None) -> AutopilotSetting:
    """Return what an operator has set of the autopilot, the very same for the same bytes; the default if nobody did."""
    with readable("the setting of the autopilot"):
        return AutopilotSetting() if body is None else _AUTOPILOT.validate_python(_unpack(body))


def pack_autopilot_decision(decision: AutopilotDecision) -> bytes:
    """Return a decision of the autopilot, packed."""
    return _pack(decision)


def autopilot_decision(row: Any) -> AutopilotDecision:
    """Return the decision in a row of the table `autopilot_decisions`."""
    with readable(f"decision {row.number} of the autopilot"):
        fields = _unpack(row.decision) | {"has_question": row.has_question}
        return _AUTOPILOT_DECISION.validate_python(fields)
