"""Settings that belong together, and those that cannot be beside each other: checks that raise ValueError."""

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from gavel.config_sections import KubernetesSection, NodesSection, SlurmSection

FORMER_NAMES = {
    "policy_path": "policy_dir",
    "ray_node_folder": "ray_node_dir",
    "ray_checkpoints": "ray_checkpoint_dir",
    "log_bytes_per_job": "job_log_bytes",
    "queued_jobs_per_user": "unfinished_jobs_per_user",
}
"""Names that settings had, refused with the present one, so that no value is silently left out."""

REGION = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
SEVERAL = "several"
OF_BACKEND = frozenset(
    {
        "backend",
        "virtual_nodes",
        "cpu_workers",
        "cpu_workers_per_core",
        "simulated_nodes",
        "simulated_workers_per_node",
        "simulated_report_period_s",
        "simulated_checkpoint_period_s",
        "ray_address",
        "ray_checkpoint_dir",
        "ray_node_dir",
        "ray_report_period_s",
        "slurm",
        "kubernetes",
    }
)
"""Settings that each of several backends may have for itself."""


class BackendSettings(Protocol):
    """The settings that are looked at here."""

    backend: Any
    ray_address: str
    slurm: SlurmSection
    kubernetes: KubernetesSection


SAME: Mapping[str, tuple[Callable[[BackendSettings, str], Hashable], str]] = {
    "local": (lambda own, region: "", "this machine would be used twice"),
    "slurm": (lambda own, region: "", "Slurm's commands reach one cluster"),
    "ray": (lambda own, region: own.ray_address, "both name the same cluster: set ray_address"),
    "kubernetes": (
        lambda own, region: (own.kubernetes.kubeconfig, own.kubernetes.context, own.kubernetes.namespace),
        "both name the same cluster: set kubernetes.context",
    ),
    "simulated": (lambda own, region: region, ""),
}
"""What tells two backends of a kind apart, and what is wrong with two that are the same."""


def renamed(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was given. Raise ValueError if it uses a former name, in the environment too."""
    for former, name in FORMER_NAMES.items():
        if former in given or f"GAVEL_{former.upper()}" in os.environ:
            raise ValueError(f"{former} is called {name}")
    return given


def check_tls(cert_file: Path | None, key_file: Path | None) -> None:
    """Raise ValueError for one of the two files without the other."""
    if (cert_file is None) != (key_file is None):
        raise ValueError("tls_cert_file and tls_key_file belong together: give both, or neither")


def check_public_url(public_url: str, *, has_oidc: bool, has_connections: bool) -> None:
    """Raise ValueError if browsers or nodes need an address of the service and there is none."""
    if has_oidc and not public_url:
        raise ValueError("oidc needs public_url: the provider sends browsers back to that address")
    if has_connections and not public_url:
        raise ValueError('orders = "connection" needs public_url: nodes connect to that address')


def check_backends(backend: str, backends: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ValueError unless there are backends exactly where there are to be several, each with settings of its own.

    `backends` are the settings of each by its region, as they were written.
    """
    if (backend == SEVERAL) != bool(backends):
        raise ValueError(f'backend = "{SEVERAL}" and sections backends.REGION belong together: give both, or neither')
    for region, given in backends.items():
        if given.get("backend") in (None, SEVERAL):
            raise ValueError(f"backends.{region}.backend: say which one, {', '.join(SAME)}")
        if foreign := sorted(given.keys() - OF_BACKEND):
            raise ValueError(f"backends.{region}.{foreign[0]}: is for all backends together, write it outside")


def check_beside(by_region: Mapping[str, BackendSettings]) -> None:
    """Raise ValueError if two of the backends would be in each other's way."""
    _check_apart(
        ((own.backend, SAME[own.backend][0](own, region)), region, f"{own.backend}; {SAME[own.backend][1]}")
        for region, own in by_region.items()
    )
    nodes = {region: each for region, own in by_region.items() if (each := _nodes_section(own)) is not None}
    _check_apart(
        (each.shared_dir, region, f"at {each.shared_dir}: set shared_dir")
        for region, each in nodes.items()
        if each.needs_shared_dir
    )
    _check_apart(("", region, 'with orders = "connection": only one can be') for region in connected(by_region))


def connected(by_region: Mapping[str, BackendSettings]) -> list[str]:
    """Return the regions whose nodes get their orders over connections."""
    sections = {region: _nodes_section(own) for region, own in by_region.items()}
    return [region for region, each in sections.items() if each is not None and each.orders == "connection"]


def _check_apart(backends: Iterator[tuple[Hashable, str, str]]) -> None:
    """Raise ValueError for two backends with the same key, of (key, region, what both are)."""
    first: dict[Hashable, str] = {}
    for key, region, what in backends:
        if key in first:
            raise ValueError(f"backends.{first[key]} and backends.{region} are both {what}")
        first[key] = region


def _nodes_section(own: BackendSettings) -> NodesSection | None:
    sections: dict[str, NodesSection] = {"slurm": own.slurm, "kubernetes": own.kubernetes}
    return sections.get(own.backend)
