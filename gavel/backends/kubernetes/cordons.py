"""Cordons of Kubernetes: of nodes that an operator of Gavel has closed, told from those of other people."""

import math
import time
from collections.abc import Collection, Mapping
from urllib.parse import quote

from gavel.backends.kubernetes.api import STRATEGIC, Api, Object
from gavel.backends.kubernetes.protocol import DOMAIN, KubernetesSettings

CORDONED_BY = f"{DOMAIN}/cordoned-by"
"""Annotation of a node: the namespace whose service has cordoned it."""
AGAIN_S = 2.0  # seconds until a cordon that is not seen is set again


def is_cordoned_for_us(shown: Object, settings: KubernetesSettings) -> bool:
    """Return True if the node is cordoned and our service did that."""
    owner = (shown["metadata"].get("annotations") or {}).get(CORDONED_BY)
    return bool(shown.get("spec", {}).get("unschedulable")) and owner == settings.namespace


def set_cordon(api: Api, node: str, settings: KubernetesSettings, *, is_cordoned: bool) -> Object:
    """Return the node with our cordon, or without. Raises Refused, BackendUnavailable.

    It is a patch and no apply, which would make a node that has gone.
    """
    owner = settings.namespace if is_cordoned else None
    body = {
        "metadata": {"annotations": {CORDONED_BY: owner}},
        "spec": {"unschedulable": is_cordoned or None},
    }
    return api.patch(f"/api/v1/nodes/{quote(node, safe='')}", body, STRATEGIC)


class Cordoning:
    """Knows which cordons are to be set now."""

    def __init__(self) -> None:
        self._set_at_s: dict[tuple[str, bool], float] = {}  # by node and what was asked (monotonic)

    def due(self, asked: Mapping[str, bool], closed: Collection[str]) -> dict[str, bool]:
        """Return those to set of the cordons that are asked for and not seen yet; each is due again after a while.

        A node of `closed` is cordoned by others: nothing is to be done there, and it stays theirs to let go.
        """
        now_s = time.monotonic()
        wanted = {(name, each) for name, each in asked.items() if not (each and name in closed)}
        self._set_at_s = {each: at_s for each, at_s in self._set_at_s.items() if each in wanted}
        due = {each for each in wanted if now_s - self._set_at_s.get(each, -math.inf) > AGAIN_S}
        self._set_at_s |= dict.fromkeys(due, now_s)
        return dict(due)
