"""A control plane of Kubernetes on this machine, for demo, tests and benchmarks: etcd, API server, scheduler."""

import datetime
import ipaddress
import json
import os
import secrets
import shutil
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from gavel.backends.kubernetes.api import Refused
from gavel.backends.local_cluster import LocalCluster, free_ports
from gavel.errors import BackendUnavailable

BINARIES = ("kube-apiserver", "kube-scheduler")
START_LIMIT_S = 120.0
OPERATOR = "operator"


def missing_programs() -> str:
    """Return which programs of a control plane are not here, separated by commas; "" if all are.

    `KUBERNETES_BIN` names the folder of the API server and the scheduler; etcd is there or on the path.
    """
    folder = os.environ.get("KUBERNETES_BIN", "")
    if not folder:
        return "KUBERNETES_BIN is not set: a folder with kube-apiserver and kube-scheduler"
    missing = [name for name in BINARIES if not (Path(folder) / name).is_file()]
    return ", ".join([*missing, *([] if _path_of("etcd") else ["etcd"])])


def _path_of(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('KUBERNETES_BIN', '')}:{os.environ.get('PATH', '')}")


class ControlPlane(LocalCluster):
    """etcd, an API server and a scheduler as processes of this machine, with ports, keys and a folder of their own.

    `users` are authenticated by token without any right but those that are granted by RBAC; the kubeconfig is that of
    an operator, with a context for each user. Raises BackendUnavailable if it does not come up.
    """

    def __init__(self, users: tuple[str, ...] = ()) -> None:
        super().__init__("Kubernetes", start_limit_s=START_LIMIT_S)
        self._users = {OPERATOR: secrets.token_hex(16), **{name: secrets.token_hex(16) for name in users}}
        self.kubeconfig = self.folder / "kubeconfig"
        self.environment["KUBECONFIG"] = str(self.kubeconfig)

    def _start(self) -> None:
        if missing := missing_programs():
            raise BackendUnavailable(f"no control plane of Kubernetes to start: {missing}")
        self._etcd_port, self._etcd_peer, self._port, self._scheduler_port, self._health_port = free_ports(5)
        self._write()
        self._start_etcd()
        self.start_api_server()
        self.start_scheduler()

    def kill(self, name: str) -> None:
        """Kill etcd, kube-apiserver or kube-scheduler."""
        self._kill(name)

    def start_api_server(self) -> None:
        """Start the API server, after `kill`; its objects are those of before."""
        folder = self.folder
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--insecure-port=0",
            f"--tls-cert-file={folder}/server.crt",
            f"--tls-private-key-file={folder}/server.key",
            f"--service-account-key-file={folder}/server.key",
            f"--service-account-signing-key-file={folder}/server.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.250.0.0/24",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=2000",
        )
        self._await(self._answers, "the API server does not answer")

    def start_scheduler(self) -> None:
        """Start the scheduler."""
        self._run(
            "kube-scheduler",
            f"--config={self.folder}/scheduler.json",
            f"--secure-port={self._scheduler_port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}/scheduler",
        )
        self._await(lambda: _is_open(self._scheduler_port), "the scheduler does not listen")

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._etcd_peer))
        self._run(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        self._await(lambda: _is_open(self._etcd_port), "etcd does not listen")

    def _answers(self) -> bool:
        from collections import Counter

        from gavel.backends.kubernetes.api import Api

        try:
            Api(str(self.kubeconfig), OPERATOR, Counter()).get("/api/v1/namespaces/default")
        except (BackendUnavailable, Refused):
            return False
        return True

    def _write(self) -> None:
        _write_certificate(self.folder)
        groups = {OPERATOR: "system:masters"}
        rows = [f'{token},{name},{name},"{groups.get(name, "people")}"' for name, token in self._users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self.folder / "server.crt"),
        }
        self.kubeconfig.touch(0o600)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}} for name, token in self._users.items()],
            "contexts": [{"name": name, "context": {"cluster": "here", "user": name}} for name in self._users],
            "current-context": OPERATOR,
        }
        self.kubeconfig.write_text(json.dumps(config))
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "healthzBindAddress": f"127.0.0.1:{self._health_port}",
            "metricsBindAddress": f"127.0.0.1:{self._health_port}",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 2000},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
        }
        (self.folder / "scheduler.json").write_text(json.dumps(scheduler))

    def _run(self, name: str, *arguments: str) -> None:
        path = _path_of(name)
        if path is None:
            raise BackendUnavailable(f"{name} is not installed")
        self._spawn(name, [path, *arguments])


def _is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _write_certificate(folder: Path) -> None:
    """Write a key, and a certificate for 127.0.0.1 that is its own authority."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gavel-kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "server.key").touch(0o600)
    (folder / "server.key").write_bytes(private)
    (folder / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
