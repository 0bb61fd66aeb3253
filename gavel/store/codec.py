"""Nouns to JSON and back; floats and arrays come back bit for bit, infinities included. Never pickle.

`warm_start` may hold JSON values and numeric arrays; its tuples come back as lists.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from gavel.errors import StoreUnavailable
from gavel.ports import ThroughputEstimate
from gavel.types import (
    Allocation,
    AllocationProblem,
    ApplicationResource,
    Certificate,
    Cluster,
    Job,
    Lease,
    NodeStatus,
    PairRates,
    RoundInputs,
    RoundPlan,
    RoundRecord,
    Tier,
)

Json = Any
_JOB = TypeAdapter(Job)
_PLAN = TypeAdapter(RoundPlan)
_CLUSTER = TypeAdapter(Cluster)
_LEASES = TypeAdapter(tuple[Lease, ...])
_NODES = TypeAdapter(tuple[NodeStatus, ...])
_RESOURCES = TypeAdapter(tuple[ApplicationResource, ...])
_THROUGHPUTS = TypeAdapter(tuple[ThroughputEstimate, ...])
_TIERS = TypeAdapter(tuple[Tier, ...])
_JOB_COLUMNS = {"id", "spec", "state", "submitted_at_s", "steps_done", "token", "version"}
_JOB_COLUMNS |= {"cancel_requested", "pause_requested"}
_JOB_PROGRESS = tuple(each.name for each in fields(Job) if each.name not in _JOB_COLUMNS)


# --- JSON, compressed or not ------------------------------------------------------------------------------------


def dump(value: Any) -> str:
    """Compact JSON text. Characters that no database takes (lone surrogates, from odd log bytes) become `?`."""
    return _ENCODER.encode(value).encode("utf-8", "replace").decode()


def plain_text(text: str) -> str:
    """`text` without what PostgreSQL or UTF-8 refuse: NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _pack(value: Any) -> bytes:
    return zlib.compress(dump(value).encode(), level=1)


def _unpack(body: bytes) -> Json:
    return json.loads(zlib.decompress(body), object_hook=_restore)


def _plain(value: Any) -> Json:
    """What the json module asks for when it meets a type it does not know."""
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
    """A damaged row is an unusable database, never an absent job."""
    try:
        yield
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise StoreUnavailable(f"{what} cannot be read, the database is damaged: {error}") from error


# --- jobs -------------------------------------------------------------------------------------------------------


def progress(job: Job) -> str:
    """The scheduler's fields of a job that have no column of their own."""
    return dump({name: getattr(job, name) for name in _JOB_PROGRESS})


def job(row: Any) -> Job:
    """A job from a row of the table `jobs`."""
    with readable(f"job {row.id}"):
        return _JOB.validate_python(
            json.loads(row.progress)
            | {
                "id": row.id,
                "spec": json.loads(row.spec),
                "state": row.state,
                "submitted_at_s": row.submitted_at_s,
                "steps_done": row.steps_done,
                "token": row.token,
                "version": row.version,
                "cancel_requested": row.cancel_requested,
                "pause_requested": row.pause_requested,
            }
        )


# --- rounds -----------------------------------------------------------------------------------------------------


def pack_round(record: RoundRecord) -> tuple[bytes, bytes]:
    """Plan and decision of a round."""
    owed = [[job_id, name, rounds] for (job_id, name), rounds in record.owed_rounds.items()]
    decision = {
        "problem": record.problem,
        "allocation": record.allocation,
        "owed_rounds": owed,
        "solver_outcome": record.solver_outcome,
        "switch_cost_s": record.switch_cost_s,
        "inputs": record.inputs,
    }
    return _pack(record.plan), _pack(decision)


def plan(row: Any) -> RoundPlan:
    """The plan from a row of the table `rounds`."""
    with readable(f"round {row.round_index}"):
        return _plan(row.plan)


@lru_cache(maxsize=64)  # a page shows forty; only the plan of the round in force is ever written anew
def _plan(body: bytes) -> RoundPlan:
    return _PLAN.validate_python(_unpack(body))


def record(row: Any) -> RoundRecord:
    """A whole round from a row of the table `rounds`."""
    with readable(f"round {row.round_index}"):
        decision = _unpack(row.decision)
        return RoundRecord(
            plan=plan(row),
            problem=_problem(decision["problem"]),
            allocation=_allocation(decision["allocation"]),
            owed_rounds={(job_id, name): rounds for job_id, name, rounds in decision["owed_rounds"]},
            solver_outcome=decision["solver_outcome"],
            switch_cost_s=decision.get("switch_cost_s", {}),
            inputs=_inputs(decision.get("inputs")),
        )


def _problem(item: dict[str, Any]) -> AllocationProblem:
    tuples = {name: tuple(item[name]) for name in ("job_ids", "accelerator_types", "users")}
    combinations = tuple(tuple(each) for each in item["combinations"])
    tiers = _TIERS.validate_python(item["tiers"])
    pairs = PairRates(**item["pair_rates"]) if item.get("pair_rates") else None
    return AllocationProblem(**item | tuples | {"combinations": combinations, "tiers": tiers, "pair_rates": pairs})


def _allocation(item: dict[str, Any]) -> Allocation:
    return Allocation(
        **item
        | {
            "combinations": tuple(tuple(each) for each in item["combinations"]),
            "accelerator_types": tuple(item["accelerator_types"]),
            "certificate": Certificate(**item["certificate"]),
            "notes": tuple((job_id, text) for job_id, text in item.get("notes", ())),
        }
    )


def _inputs(item: dict[str, Any] | None) -> RoundInputs | None:
    if item is None:
        return None
    return RoundInputs(
        **item
        | {
            "cluster": _CLUSTER.validate_python(item["cluster"]),
            "parent": None if item["parent"] is None else _PLAN.validate_python(item["parent"]),
            "kept": _LEASES.validate_python(item["kept"]),
            "kinds": tuple(item["kinds"]),
            "to_profile": tuple((job_id, name) for job_id, name in item["to_profile"]),
        }
    )


# --- documents --------------------------------------------------------------------------------------------------


def pack_plan(plan: RoundPlan) -> bytes:
    """A plan alone."""
    return _pack(plan)


def pack_document(
    value: Cluster | tuple[ThroughputEstimate, ...] | tuple[NodeStatus, ...] | tuple[ApplicationResource, ...] | str,
) -> bytes:
    """Something that is stored and replaced whole."""
    return _pack(value)


def cluster(body: bytes | None) -> Cluster:
    """The stored cluster; empty if there is none."""
    with readable("the cluster"):
        return Cluster() if body is None else _CLUSTER.validate_python(_unpack(body))


def throughputs(body: bytes | None) -> tuple[ThroughputEstimate, ...]:
    """The stored table of throughputs; empty if there is none."""
    with readable("the table of throughputs"):
        return () if body is None else _THROUGHPUTS.validate_python(_unpack(body))


def nodes(body: bytes | None) -> tuple[NodeStatus, ...]:
    """What is kept of each node; empty if there is none."""
    with readable("the list of nodes"):
        return () if body is None else _NODES.validate_python(_unpack(body))


def resources(body: bytes | None) -> tuple[ApplicationResource, ...]:
    """The ephemeral resources that applications want; empty if there are none."""
    with readable("the ephemeral resources"):
        return () if body is None else _RESOURCES.validate_python(_unpack(body))


def policy(body: bytes | None) -> str:
    """The policy that an operator switched to; empty if none did."""
    with readable("the policy"):
        return "" if body is None else str(_unpack(body))
