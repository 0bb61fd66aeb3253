"""A composition: the policy and the parts of the mechanism that together make up the scheduler, named by one string.

`max_min_fairness?water_filling=false/backfill=false/round_duration_s=360`: a policy with its parameters, then parts,
each one a setting of the service. A part that is not named is as the service has it. Tiers with their weights,
guarantees and caps are never part of it. The service runs one: an operator's, or what the autopilot chose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from gavel.config import Settings
from gavel.errors import InvalidRequest, did_you_mean

PARTS = ("backfill", "planner", "price_moves", "round_duration_s", "space_sharing")
ROUND_FACTOR = 4.0  # a round is at most so many times as long, or as short, as the service's own
FIELD = "composition"

Value = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """`parts` (name, value) are sorted by name. Equal exactly if their texts are, if `policy` is canonical."""

    policy: str
    parts: tuple[tuple[str, Value], ...] = ()

    @property
    def text(self) -> str:
        """Return the one string that names it, which `read` reads."""
        return "/".join((self.policy, *(f"{name}={_text(value)}" for name, value in self.parts)))

    def settings(self, service: Settings) -> Settings:
        """Return the service's settings with this policy and these parts."""
        return service.model_copy(update={"policy": self.policy, **dict(self.parts)})


def parsed(text: str, service: Settings, canonical: Callable[[str], str] = str) -> Composition:
    """Return the composition of `POLICY/PART=VALUE/..`. Raise InvalidRequest, which names the choices.

    `canonical` returns the policy in its one spelling, and raises InvalidRequest if there is no such policy; without it
    nothing is known of policies.
    """
    policy, *parts = text.split("/")
    values: dict[str, Value] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name not in PARTS or not equals:
            choices = ", ".join(f"{each}=VALUE" for each in PARTS)
            raise InvalidRequest(FIELD, f"has no part {part!r}; write {choices}{did_you_mean(name, PARTS)}")
        if name in values:
            raise InvalidRequest(FIELD, f"sets {name} twice; set each part once")
        values[name] = _value(name, value)
    _check_round(values, service)
    return Composition(policy=canonical(policy), parts=tuple(sorted(values.items())))


def effective(service: Settings, chosen: str) -> Settings:
    """Return the settings in force: the service's, with the composition that was chosen (empty: none).

    One that cannot be read is a policy that no runner can load: it falls back as any failed solve, which tells why.
    """
    if not chosen:
        return service
    try:
        return parsed(chosen, service).settings(service)
    except InvalidRequest:
        return service.model_copy(update={"policy": chosen})


def _value(name: str, text: str) -> Value:
    try:
        value: Value = _adapter(name).validate_python(text)
    except ValidationError as error:
        raise InvalidRequest(FIELD, f"{name}={text}: {error.errors()[0]['msg'].lower()}") from None
    return value


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """Return what reads a value of the setting, with the bounds that the setting has."""
    field = Settings.model_fields[name]
    kind: Any = field.annotation
    return TypeAdapter(Annotated[kind, *field.metadata] if field.metadata else kind)


def _check_round(values: Mapping[str, Value], service: Settings) -> None:
    wanted_s, own_s = values.get("round_duration_s"), service.round_duration_s
    if isinstance(wanted_s, float) and not own_s / ROUND_FACTOR <= wanted_s <= own_s * ROUND_FACTOR:
        raise InvalidRequest(
            FIELD,
            f"round_duration_s={_text(wanted_s)}: the service's rounds take {own_s:g} s; "
            f"give {own_s / ROUND_FACTOR:g} to {own_s * ROUND_FACTOR:g}",
        )


def _text(value: Value) -> str:
    write: Callable[[Value], str] = (lambda flag: str(flag).lower()) if isinstance(value, bool) else str
    return write(value).removesuffix(".0")
