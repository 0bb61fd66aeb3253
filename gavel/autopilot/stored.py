"""Questions as they are stored: compressed JSON, never pickle, from which the same decision is made again.

Of the settings only those that decide are stored, and of jobs neither command lines nor environments: a question holds
no secret. Whoever decides first packs the question and reads it back, so that what is decided on is what is stored.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from gavel.autopilot.decision import Question, Yardstick
from gavel.autopilot.learning import Experience
from gavel.config import Settings
from gavel.simulator.rules import DECIDING, ESTIMATING, LOSING
from gavel.store import codec
from gavel.types import JobSpec
from workloads.traces.history import COPIED
from workloads.traces.job import TraceJob

SPEC = (*COPIED, "plans", "plan", "deadline_at_s")
"""Fields of a job's specification that are stored."""
KEPT = (*DECIDING, *ESTIMATING, *LOSING, "policy_dir", "solve_time_limit_s")


class _Whole(BaseModel):
    """Decodes a question by the types of its fields, arrays among them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    question: Question


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """What a decision leaves to the next one: what was learned until it, and what its costs are measured by."""

    experience: Experience
    yardstick: Yardstick


class _WholeMemory(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Memory


def pack_memory(memory: Memory) -> bytes:
    """Return the memory as it is stored."""
    return codec.pack_value({"memory": memory})


def unpack_memory(body: bytes) -> Memory:
    """Return the memory. Raises StoreUnavailable for a damaged one."""
    with codec.readable("what the autopilot has learned"):
        return _WholeMemory.model_validate(codec.unpack_value(body)).memory


def pack(question: Question) -> bytes:
    """Return the question as it is stored."""
    scenario, state = question.scenario, question.state
    active = replace(state.active, jobs=tuple(_bare(job) for job in state.active.jobs))
    rewritten = {
        "scenario": _fields(scenario) | {"settings": None, "throughput": {}},
        "state": replace(state, active=active),
        "history": tuple(replace(each, job=_bare(each.job)) for each in question.history),
    }
    return codec.pack_value(
        {
            "question": _fields(question) | rewritten,
            "settings": scenario.settings.model_dump(mode="json", include=set(KEPT)),
            "rates": [[*key, rate] for key, rate in scenario.throughput.items()],
        }
    )


def unpack(body: bytes) -> Question:
    """Return the question. Raises StoreUnavailable for a damaged one."""
    with codec.readable("a question of the autopilot"):
        stored = codec.unpack_value(body)
        fields_of = stored["question"]
        rates = {(kind, size, name): rate for kind, size, name, rate in stored["rates"]}
        fields_of["scenario"] |= {"settings": Settings.model_construct(), "throughput": rates}
        question = _Whole.model_validate({"question": fields_of}).question
        return replace(question, scenario=replace(question.scenario, settings=_settings(stored["settings"])))


def _settings(kept: dict[str, Any]) -> Settings:
    """Return the defaults with the settings that were kept; neither environment nor files of this machine count."""
    policy_dir = kept["policy_dir"]
    return Settings.model_construct(**kept | {"policy_dir": None if policy_dir is None else Path(policy_dir)})


def _bare(job: TraceJob) -> TraceJob:
    """Return the job with what a simulation reads of it."""
    kept = {name: getattr(job.spec, name) for name in SPEC}
    kept["plans"] = tuple(replace(plan, argv=()) for plan in job.spec.plans)
    return replace(job, spec=JobSpec(argv=(), **kept))


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}
