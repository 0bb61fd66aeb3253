"""Where the cluster is, and what our pods ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gavel.backends.nodes.protocol import NodeSettings

DOMAIN = "gavel.internal"
ALLOCATION = f"{DOMAIN}/allocation"
"""Label of our pods: the name of the folder of their allocation."""
GATE = f"{DOMAIN}/gang"
"""Scheduling gate of our pods, until all of their gang are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(NodeSettings):
    """Where the cluster is, and what pods ask of it.

    `kubeconfig`, `context`: "" is what kubectl would use, or the service's own pod. `folder`: where orders and answers
    are. `orders_url`: address of the service's API at which pods get orders, which they check by `certificates` ("":
    by those of their image); "": every pod sees `folder` under the same path. `shared_dir`: where pods mount
    `shared_volume` (a volume source of Kubernetes); "": they share none. `node_volume` is mounted at `node_folder`.
    `image`: of pods whose jobs have none; it has Gavel, and gives it to pods of other images. "": Gavel is in every
    image already, as `python`. `resources`: extended resources that are accelerators, besides NVIDIA's MIG devices.
    `volumes` and `mounts` are added to each pod. `scheduler`: the one that binds pods; "": the cluster's own.
    `start_limit_s`: seconds from the binding of pods until all their agents have spoken; `bind_limit_s`: until all
    pods are bound. `cordons`: nodes that an operator of Gavel closes are cordoned.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = "default"
    folder: str = "/gavel"
    orders_url: str = ""
    certificates: str = ""
    shared_dir: str = "/gavel"
    lease_grace_s: float = 5.0
    image: str = ""
    python: str = "python3"
    resources: tuple[str, ...]
    shared_volume: Mapping[str, Any] = field(default_factory=lambda: {"persistentVolumeClaim": {"claimName": "gavel"}})
    node_volume: Mapping[str, Any] = field(default_factory=lambda: {"emptyDir": {}})
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    service_account: str = "default"
    scheduler: str = ""
    bind_limit_s: float = 30.0
    start_limit_s: float = 600.0
    cordons: bool = True

    @property
    def domain(self) -> str:
        """Return the domain of the gangs' extended resources, which are `DOMAIN/JOB.GENERATION`.

        Each namespace has one of its own, so that several services can use the same nodes.
        """
        return f"{self.namespace}.gang.{DOMAIN}"

    @property
    def manager(self) -> str:
        """Return the field manager under which they are applied."""
        return f"gavel-{self.namespace}"
