"""Finds policies by name: `load("max_min_fairness?water_filling=false")`.

A policy is a file of this folder with a module attribute POLICY: a frozen dataclass whose fields are its parameters.
Nothing here imports cvxpy; policies do so when they are first asked to allocate.
"""

import importlib
import math
import pkgutil
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import gavel.policies
from gavel.errors import InvalidRequest, did_you_mean
from gavel.policies._own import FilesVersion, files_version, own_policies
from gavel.policies._parameters import AnySign, TierObjectives
from gavel.policies.programs.variants import Agnostic
from gavel.policies.tiers import objectives
from gavel.ports import Policy
from gavel.types import Tier, tier_objectives

TIER_OBJECTIVES: Mapping[str, str] = types.MappingProxyType(
    {name: f"{one.meaning}. {one.choose_when}" for name, one in objectives.OBJECTIVES.items()}
    | {tier_objectives.AUTO: objectives.AUTO_MEANING}
)
"""The objectives that a tier may have (name -> its meaning, and a sentence that says when to choose it)."""

WITHIN_USER: Mapping[str, str] = types.MappingProxyType(
    {name: one.meaning for name, one in objectives.WITHIN_USER.items()}
)
"""How jobs of one user may share what the user has, in a tier of objective fairness (name -> its meaning)."""

AGNOSTIC = "agnostic"
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParameter:
    """A parameter as users write it. `choices` is empty where any positive number will do, or any if `is_signed`.

    `is_objectives`: it names objectives of tiers, as gold:speed,free:fifo.
    """

    name: str
    default: str
    choices: tuple[str, ...] = ()
    is_signed: bool = False
    is_objectives: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """A policy's name, the sentence that says when to choose it, formula, source and parameters."""

    name: str
    choose_when: str  # empty: a policy of the operator's own that does not say so
    formula: str
    source: str
    parameters: tuple[PolicyParameter, ...]


def load(spec: str, folder: Path | None = None) -> Policy:
    """Return the policy that `name?parameter=value&..` means. Raises InvalidRequest, which names the choices.

    Every policy also takes `agnostic=true`: it then decides as if it could not tell accelerator types apart. `folder`
    holds policy files of the operator's own, which are executed (docs/adding-a-policy.md).
    """
    return _load(canonical(spec, folder), folder)


def canonical(spec: str, folder: Path | None = None) -> str:
    """Return `spec` without defaults, parameters sorted: equal for two specs exactly if they mean the same policy."""
    policy, given = _parsed(spec, folder)
    parameters = {parameter.name: parameter for parameter in _info(policy).parameters}
    set_apart = {
        key: text for key, text in given.items() if _value(policy, key, text) != _value_of_default(parameters[key])
    }
    written = "&".join(f"{key}={_text(_value(policy, key, text))}" for key, text in sorted(set_apart.items()))
    return f"{policy.name}?{written}" if written else str(policy.name)


def check_objectives(spec: str, tiers: Iterable[Tier]) -> None:
    """Raise InvalidRequest if `spec`, of a known policy, names the objective of a tier that has one of its own."""
    for name, own in tier_objectives.not_auto(spec, tiers).items():
        fix = f"it has the objective {own}; set that to auto first" if own else "there is no such tier; leave it out"
        raise InvalidRequest("policy", f"objectives: {name}: {fix}")


def available(folder: Path | None = None) -> tuple[PolicyInfo, ...]:
    """Return all policies, the operator's own included, sorted by name. Raises InvalidRequest for a bad file."""
    policies, faults = _classes(folder)
    if faults:
        raise faults[0]
    return tuple(_info(policy) for _, policy in sorted(policies.items()))


def _classes(folder: Path | None) -> tuple[dict[str, Any], tuple[InvalidRequest, ...]]:
    """Policies by name, and an error for each own file without one; a changed file is executed again."""
    if folder is None:
        return _shipped(), ()
    own, faults = _own(folder, files_version(folder))
    return _shipped() | own, faults


@cache
def _own(folder: Path, files: FilesVersion) -> tuple[dict[str, Any], tuple[InvalidRequest, ...]]:
    policies, faults = own_policies(folder, files)
    accepted: dict[str, Any] = {}
    for policy in policies:
        fault = _fault(policy, accepted)
        if fault is None:
            accepted[policy.name] = policy
        else:
            faults = (*faults, InvalidRequest("policy_dir", fault))
    return accepted, faults


def _fault(policy: Any, accepted: Mapping[str, Any]) -> str | None:
    """Why an own policy cannot be accepted in addition to `accepted`, or None."""
    if policy.name in accepted or policy.name in _shipped():
        return f"there is a policy {policy.name!r} already; give yours another name"
    try:
        _info(policy)
    except Exception as error:  # a type hint may be anything
        return f"the parameters of {policy.name!r} cannot be read: {type(error).__name__}: {error}"
    return None


@cache
def _shipped() -> dict[str, Any]:
    names = [module.name for module in pkgutil.iter_modules(gavel.policies.__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{gavel.policies.__name__}.{name}") for name in names if name != "registry"]
    return {module.POLICY.name: module.POLICY for module in modules if hasattr(module, "POLICY")}


def _load(spec: str, folder: Path | None) -> Policy:
    kind, given = _parsed(spec, folder)
    return _made(kind, spec, tuple((key, _value(kind, key, text)) for key, text in given.items()))


@cache
def _made(kind: Any, spec: str, given: tuple[tuple[str, Any], ...]) -> Policy:
    values = dict(given)
    is_agnostic = values.pop(AGNOSTIC, False)
    policy: Policy = kind(**values)
    return Agnostic(name=spec, policy=policy) if is_agnostic else policy


def _no_policy(name: str, names: list[str]) -> str:
    return f"there is no {name!r}; choose one of {', '.join(names)}{did_you_mean(name, names)}"


def _parsed(spec: str, folder: Path | None) -> tuple[Any, dict[str, str]]:
    """The class of the policy, and the text of each parameter that is given."""
    name, _, query = spec.partition("?")
    policies = _among(name, folder)
    if name not in policies:
        raise InvalidRequest("policy", _no_policy(name, sorted(policies)))
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True, max_num_fields=20) if query else []
    except ValueError as error:
        raise InvalidRequest("policy", f"cannot read {query!r}; write parameter=value&parameter=value") from error
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidRequest("policy", f"sets a parameter twice in {query!r}; set each once")
    for key in given:
        _check_known(policies[name], key)
    return policies[name], given


def _among(name: str, folder: Path | None) -> Mapping[str, Any]:
    """The policies in which `name` is looked up; own files are executed only if `name` is not a built-in policy."""
    if name in _shipped():
        if folder is not None:
            files_version(folder)  # a folder that is not there is a mistake, whatever is asked for
        return _shipped()
    policies, faults = _classes(folder)
    if name not in policies and faults:
        raise faults[0]
    return policies


def _check_known(policy: Any, key: str) -> None:
    names = [parameter.name for parameter in _info(policy).parameters]
    if key not in names:
        raise InvalidRequest("policy", f"{policy.name} has no parameter {key!r}; choose one of {', '.join(names)}")


@cache
def _info(policy: Any) -> PolicyInfo:
    hints = get_type_hints(policy, include_extras=True)
    own = tuple(_parameter(field, hints[field.name]) for field in fields(policy))
    everyone = PolicyParameter(name=AGNOSTIC, default="false", choices=tuple(_TRUTH))
    return PolicyInfo(
        name=policy.name,
        choose_when=getattr(policy, "choose_when", ""),
        formula=policy.formula,
        source=policy.source,
        parameters=(*own, everyone),
    )


def _parameter(field: Field[Any], kind: Any) -> PolicyParameter:
    assert field.default is not MISSING, f"parameter {field.name} of a policy needs a default"
    default = _text(field.default)
    return PolicyParameter(
        name=field.name,
        default=default,
        choices=_choices(kind),
        is_signed=kind == AnySign,
        is_objectives=kind == TierObjectives,
    )


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return tuple(_TRUTH)
    return tuple(str(choice) for choice in get_args(kind)) if get_origin(kind) is Literal else ()


def _value(policy: Any, key: str, text: str) -> Any:
    """What `text` means for parameter `key`; raises InvalidRequest naming the choices."""
    parameter = next(one for one in _info(policy).parameters if one.name == key)
    if parameter.choices:
        if text not in parameter.choices:
            raise InvalidRequest("policy", f"{key}={text!r}: choose one of {', '.join(parameter.choices)}")
        return _TRUTH.get(text, text)
    return _objectives(key, text) if parameter.is_objectives else _number(key, text, is_signed=parameter.is_signed)


def _value_of_default(parameter: PolicyParameter) -> Any:
    if parameter.choices or parameter.is_objectives:
        return _TRUTH.get(parameter.default, parameter.default)
    return float(parameter.default)


def _objectives(key: str, text: str) -> str:
    try:
        chosen = tier_objectives.read_objectives(text)
    except ValueError as error:
        raise InvalidRequest("policy", f"{key}: {error}") from None
    for tier, name in chosen.items():
        if name not in objectives.OBJECTIVES:
            choices = f"choose one of {', '.join(objectives.OBJECTIVES)}{did_you_mean(name, objectives.OBJECTIVES)}"
            raise InvalidRequest("policy", f"{key}: tier {tier} cannot have {name!r}; {choices}")
    return tier_objectives.written(chosen)


def _number(key: str, text: str, *, is_signed: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (is_signed or number > 0)):
        raise InvalidRequest("policy", f"{key}={text!r}: give a {'finite' if is_signed else 'positive'} number")
    return number


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
