"""Finds policies by name: `load("max_min_fairness?water_filling=false")`.

A policy is a file of this folder with a module attribute POLICY: a frozen dataclass whose fields are its parameters.
Nothing here imports cvxpy; policies do so when they are first asked to allocate.
"""

import importlib
import math
import pkgutil
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import gavel.policies
from gavel.errors import InvalidRequest
from gavel.policies._objectives import OBJECTIVES
from gavel.policies._own import own_policies
from gavel.policies._variants import Agnostic
from gavel.ports import Policy

TIER_OBJECTIVES: Mapping[str, str] = types.MappingProxyType({name: one.meaning for name, one in OBJECTIVES.items()})
"""The objectives that a tier may have (name -> its meaning in one line)."""

AGNOSTIC = "agnostic"
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParameter:
    """A parameter as users write it. `choices` is empty where any positive number will do."""

    name: str
    default: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """What a policy is called, what it optimises, where that comes from, and what can be set."""

    name: str
    formula: str
    source: str
    parameters: tuple[PolicyParameter, ...]


def load(spec: str, folder: Path | None = None) -> Policy:
    """The policy that `name?parameter=value&..` means; raises InvalidRequest naming the choices.

    Every policy also takes `agnostic=true`: it then decides as if it could not tell accelerator types apart. `folder`
    holds policy files of the operator's own, which are executed (docs/adding-a-policy.md).
    """
    return _load(canonical(spec, folder), folder)


def canonical(spec: str, folder: Path | None = None) -> str:
    """`spec` without defaults, parameters sorted: two specs mean the same policy if and only if these are equal."""
    policy, given = _parsed(spec, folder)
    known = {parameter.name: parameter for parameter in _info(policy).parameters}
    set_apart = {key: text for key, text in given.items() if _value(policy, key, text) != _value_of_default(known[key])}
    written = "&".join(f"{key}={_text(_value(policy, key, text))}" for key, text in sorted(set_apart.items()))
    return f"{policy.name}?{written}" if written else str(policy.name)


def available(folder: Path | None = None) -> tuple[PolicyInfo, ...]:
    """Every policy of this folder and of the operator's own, sorted by name; raises InvalidRequest for a bad file."""
    return tuple(_info(policy) for _, policy in sorted(_classes(folder).items()))


@cache
def _classes(folder: Path | None) -> dict[str, Any]:
    names = [module.name for module in pkgutil.iter_modules(gavel.policies.__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{gavel.policies.__name__}.{name}") for name in names if name != "registry"]
    found = {module.POLICY.name: module.POLICY for module in modules if hasattr(module, "POLICY")}
    for policy in own_policies(folder) if folder else ():
        if policy.name in found:
            raise InvalidRequest("policy_path", f"there is a policy {policy.name!r} already; give yours another name")
        found[policy.name] = policy
    return found


@cache
def _load(spec: str, folder: Path | None) -> Policy:
    kind, given = _parsed(spec, folder)
    values = {key: _value(kind, key, text) for key, text in given.items()}
    is_agnostic = values.pop(AGNOSTIC, False)
    policy: Policy = kind(**values)
    return Agnostic(name=spec, policy=policy) if is_agnostic else policy


def _parsed(spec: str, folder: Path | None) -> tuple[Any, dict[str, str]]:
    """The class of the policy, and the text of each parameter that is given."""
    name, _, query = spec.partition("?")
    known = _classes(folder)
    if name not in known:
        raise InvalidRequest("policy", f"there is no {name!r}; choose one of {', '.join(sorted(known))}")
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True, max_num_fields=20) if query else []
    except ValueError as error:
        raise InvalidRequest("policy", f"cannot read {query!r}; write parameter=value&parameter=value") from error
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidRequest("policy", f"sets a parameter twice in {query!r}; set each once")
    for key in given:
        _check_known(known[name], key)
    return known[name], given


def _check_known(policy: Any, key: str) -> None:
    known = [parameter.name for parameter in _info(policy).parameters]
    if key not in known:
        raise InvalidRequest("policy", f"{policy.name} has no parameter {key!r}; choose one of {', '.join(known)}")


@cache
def _info(policy: Any) -> PolicyInfo:
    hints = get_type_hints(policy)
    own = tuple(_parameter(field, hints[field.name]) for field in fields(policy))
    everyone = PolicyParameter(name=AGNOSTIC, default="false", choices=tuple(_TRUTH))
    return PolicyInfo(name=policy.name, formula=policy.formula, source=policy.source, parameters=(*own, everyone))


def _parameter(field: Field[Any], kind: Any) -> PolicyParameter:
    assert field.default is not MISSING, f"parameter {field.name} of a policy needs a default"
    return PolicyParameter(name=field.name, default=_text(field.default), choices=_choices(kind))


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
    return _positive(key, text)


def _value_of_default(parameter: PolicyParameter) -> Any:
    return _TRUTH.get(parameter.default, parameter.default) if parameter.choices else float(parameter.default)


def _positive(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidRequest("policy", f"{key}={text!r}: give a positive number")
    return number


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
