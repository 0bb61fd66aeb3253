"""What the files of a gang say, as types. A job can write each of them, so each is checked as a stranger's word.

Every function raises ValueError with a sentence that names the field, and nothing else, whatever the file holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from gavel.backends import machine
from gavel.backends.lease_rules import END_REASONS
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, Load
from gavel.types.services import DEMAND_MAX

TEXT_CHARACTERS = 1 << 14
PID_MAX = 1 << 22
INSTANT_MAX_S = 1e12
SPOILT = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What reading a record raises that was not written by a service or an agent."""

WHOLE_MAX = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRecord:
    """gang.json: what was launched, in which boot of the machine, and until when."""

    instruction: LaunchGang
    boot_id: str
    lease_boottime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """exit.json: how the gang ended, and when in seconds of boottime."""

    exit: GangExit
    boottime_s: float


def record_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for JSON, as `asdict` does, but share what is plain instead of copying it."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return record_of(value)
    is_of_dataclasses = isinstance(value, tuple) and bool(value) and is_dataclass(value[0])
    return [record_of(each) for each in value] if is_of_dataclasses else value


def gang_record(record: Mapping[str, Any], directory: Path) -> GangRecord:
    """Return what gang.json says of the gang whose folder this is, GANGS/JOB/GENERATION."""
    instruction = launch_from(_object(record, "instruction"))
    if (instruction.job_id, str(instruction.generation)) != (directory.parent.name, directory.name):
        raise ValueError("instruction is that of another gang")
    return GangRecord(
        instruction=instruction,
        boot_id=_text(record, "boot_id"),
        lease_boottime_s=_instant_s(record, "lease_boottime_s"),
    )


def lease_record(record: Mapping[str, Any]) -> tuple[float, bool]:
    """Return what lease.json says: the lease's end in seconds of boottime, and whether the gang is asked to stop."""
    return _instant_s(record, "expires_boottime_s"), bool(record.get("stop"))


def exit_record(record: Mapping[str, Any]) -> ExitRecord:
    """Return what exit.json says; an instant in the future counts as now."""
    exit_ = GangExit(
        outcome=_outcome(record),
        exit_code=_whole(record, "exit_code", -(1 << 31), 1 << 31),
        message=_text(record, "message"),
        log_tail=_text(record, "log_tail"),
        ended_by=_end_reason(record),
    )
    return ExitRecord(exit=exit_, boottime_s=_past_s(record, "boottime_s"))


def started_boottime_s(record: Mapping[str, Any]) -> float:
    """Return when the ranks started, as started.json says, in seconds of boottime; never in the future."""
    return _past_s(record, "boottime_s")


def ready_port(record: Mapping[str, Any]) -> int | None:
    """Return the port of a replica that is ready, as health.json says; None while it is not."""
    return _whole(record, "port", 1, 65_535) if record.get("is_ready") is True else None


def replica_load(record: Mapping[str, Any]) -> Load | None:
    """Return the load of a replica, as load.json says; None while it is not known. Raises ValueError."""
    if not record:
        return None
    return Load(requests_per_s=_demand(record, "requests_per_s"), queue=_demand(record, "queue"))


def _demand(record: Mapping[str, Any], name: str) -> float:
    value = machine.finite(record.get(name))
    if not 0 <= value <= DEMAND_MAX:
        raise ValueError(f"{name} must be from 0 to {DEMAND_MAX:g}")
    return value


def supervisor_process(record: Mapping[str, Any]) -> tuple[int, int]:
    """Return the pid of the supervisor and when it began, in ticks since boot, as supervisor.json says."""
    return _whole(record, "pid", 2, PID_MAX), _whole(record, "start_time", 0, WHOLE_MAX)


def launch_from(record: Mapping[str, Any]) -> LaunchGang:
    """Return the LaunchGang that `asdict` turned into JSON."""
    kinds = get_type_hints(LaunchGang)
    if unknown := record.keys() - kinds.keys():
        raise ValueError(f"{min(unknown)} is no field of a launch")
    try:
        return LaunchGang(**{name: _field(record, name, kinds[name]) for name in record})
    except TypeError as problem:  # a field is missing
        raise ValueError(str(problem)) from problem


def _field(record: Mapping[str, Any], name: str, kind: Any) -> Any:
    """Return the field as the type that LaunchGang gives it."""
    value, allowed = record[name], get_args(kind) or (kind,)
    if get_origin(kind) is tuple:
        return tuple(_texts(name, value))
    if get_origin(kind) is Mapping:
        by_name = _object(record, name)
        return dict(zip(_texts(name, [*by_name]), _texts(name, [*by_name.values()]), strict=True))
    if value is None and NoneType in allowed:
        return None
    if float in allowed:
        return _instant_s(record, name)
    if int in allowed:
        return _whole(record, name, 0, WHOLE_MAX)
    return _texts(name, [value])[0]


def _texts(name: str, values: object) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"{name} must be texts")
    return [*values]


def _object(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object")
    return value


def _outcome(record: Mapping[str, Any]) -> GangOutcome:
    try:
        return GangOutcome(str(record.get("outcome")))
    except ValueError as problem:
        raise ValueError("outcome is none that a gang has") from problem


def _end_reason(record: Mapping[str, Any]) -> str:
    reason = record.get("ended_by", "")  # a supervisor of an earlier version does not write it
    if reason not in ("", *END_REASONS):
        raise ValueError(f"ended_by must be one of {', '.join(END_REASONS)}")
    return str(reason)


def _text(record: Mapping[str, Any], name: str) -> str:
    """Return a text that every database takes: of bounded length, without NUL and half characters."""
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value[:TEXT_CHARACTERS].replace("\0", "?").encode("utf-8", "replace").decode()


def _whole(record: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = record.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}")
    return value


def _instant_s(record: Mapping[str, Any], name: str) -> float:
    try:
        instant_s = machine.finite(record.get(name))
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from problem
    if not 0 <= instant_s <= INSTANT_MAX_S:
        raise ValueError(f"{name} must be from 0 to {INSTANT_MAX_S:g} seconds")
    return instant_s


def _past_s(record: Mapping[str, Any], name: str) -> float:
    return min(_instant_s(record, name), machine.boottime_s())
