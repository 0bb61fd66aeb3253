"""Who may do what at what plays the API server: users, calls, and the rules of roles that grant them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.backends.kubernetes.api import Object

OPERATOR, NOBODY, SERVICE = "operator", "nobody", "service"
Granted = Sequence[tuple[str, Object]]
"""Rules of roles that the user `service` has, each with the namespace where it holds ("": all)."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a user asks for: one verb on one resource, in a namespace or, "", in all of them."""

    verb: str
    group: str
    resource: str
    namespace: str

    @classmethod
    def of(
        cls, command: str, path: str, plural: str, part: str, namespace: str, *, name: str, is_watch: bool
    ) -> "Call":
        """The call that a request is."""
        reading = "watch" if is_watch else "get" if name else "list"
        verbs = {"GET": reading, "POST": "create", "PATCH": "patch", "DELETE": "delete"}
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        return cls(verb=verbs[command], group=group, resource=_resource(plural, part), namespace=namespace)


def _resource(plural: str, part: str) -> str:
    return f"{plural}/{part}" if part else plural


def may(user: str, call: Call, granted: Granted) -> bool:
    """Whether a user has the right to a call."""
    return user == OPERATOR or (user == SERVICE and any(_grants(where, rule, call) for where, rule in granted))


def _grants(where: str, rule: Object, call: Call) -> bool:
    asked = {"verbs": call.verb, "apiGroups": call.group, "resources": call.resource}
    return where in ("", call.namespace) and all(value in rule[name] for name, value in asked.items())


def refusal(user: str, call: Call, name: str) -> str:
    """What the server says to a call without the right to it."""
    plural = call.resource.partition("/")[0]
    named = f'{plural} "{name}"' if name else plural
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    what = f'cannot {call.verb} resource "{call.resource}" in API group "{call.group}" {where}'
    return f'{named} is forbidden: User "{user}" {what}'


def review(user: str, body: Object, granted: Granted) -> Object:
    """The answer to the question whether a user may do something."""
    asked = body["spec"]["resourceAttributes"]
    call = Call(
        verb=asked["verb"],
        group=asked.get("group", ""),
        resource=_resource(asked["resource"], asked.get("subresource", "")),
        namespace=asked.get("namespace", ""),
    )
    return {**body, "status": {"allowed": may(user, call, granted)}}
