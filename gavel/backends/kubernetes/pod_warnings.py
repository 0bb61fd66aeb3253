"""What Kubernetes warns of a pod that is bound and does not start, such as a volume that cannot be mounted."""

from typing import Any
from urllib.parse import quote

from gavel.backends.kubernetes.api import Api, Object, items_of

ASK_AFTER_S = 10.0  # seconds that a bound pod may take to start before it is asked why it does not
ASK_AGAIN_S = 15.0
PODS_AT_ONCE = 4  # that are asked about in one look
EVENTS_MAX = 20
LETTERS_MAX = 300
SUMMARY = "Unable to attach or mount volumes"  # it says only that time is up; other warnings have the reason


def warning_of(api: Api, namespace: str, pod: str) -> str:
    """Return the last warning of a pod, as `REASON: MESSAGE`; "" if there is none.

    Raises Refused, BackendUnavailable.
    """
    chosen = f"involvedObject.kind=Pod,involvedObject.name={pod},type=Warning"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
    events = items_of(api.get(path, fieldSelector=chosen, limit=str(EVENTS_MAX)))
    last: Object = max(events, key=_rank, default={})
    words = ": ".join(str(last[part]) for part in ("reason", "message") if last.get(part))
    return " ".join(words.split())[:LETTERS_MAX]


def _rank(event: Object) -> tuple[bool, str]:
    """Return what grows with how much an event tells: a reason before a summary, then when it was seen last."""
    seen: Any = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    at = seen or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    return not str(event.get("message") or "").startswith(SUMMARY), str(at)
