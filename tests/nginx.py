"""A real nginx for tests, with the configuration that is shipped: TLS in front of a service."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import wait_until

SHIPPED = Path(__file__).parents[1] / "deploy" / "nginx" / "gavel.conf"
LIMIT_S = 60.0
STARTS_MAX = 5  # another process may take a port that was free
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def a_certificate(folder: Path, days: int = 2) -> tuple[Path, Path]:
    """A certificate of localhost that signs itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *names], check=True, capture_output=True)
    return cert, key


@contextmanager
def nginx(folder: Path, service_port: int, port: int) -> Iterator[ssl.SSLContext]:
    """nginx at https://localhost:PORT; yields what trusts its certificate. Skips the test without nginx."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("needs nginx (Debian: apt install nginx-light)")
    cert, key = a_certificate(folder)
    (folder / "nginx.conf").write_text(_around(folder))
    argv = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    context = ssl.create_default_context(cafile=str(cert))
    for _ in range(STARTS_MAX):
        (folder / "gavel.conf").write_text(_as_operators_change_it(service_port, port, cert, key))
        with (folder / "nginx.log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        wait_until(lambda process=process: process.poll() is not None or _answers(port, context))
        if process.poll() is None or "Address already in use" not in (folder / "nginx.log").read_text():
            break
    try:
        assert process.poll() is None, (folder / "nginx.log").read_text()
        yield context
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _as_operators_change_it(service_port: int, port: int, cert: Path, key: Path) -> str:
    """The shipped file, with what its head says that operators change, and ports that are free here."""
    text = SHIPPED.read_text()
    for shipped, here in (
        ("gavel.example.org", "localhost"),
        ("/etc/ssl/certs/gavel.pem", str(cert)),
        ("/etc/ssl/private/gavel.key", str(key)),
        ("127.0.0.1:8080", f"127.0.0.1:{service_port}"),
        ("listen 80;", f"listen 127.0.0.1:{free_port()};"),
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    return text


def _around(folder: Path) -> str:
    temporary = "".join(f"{each}_temp_path {folder / each};" for each in TEMPORARY)
    return (
        f"user root; daemon off; worker_processes 1; pid {folder / 'nginx.pid'}; events {{}}\n"
        f"http {{ access_log off; {temporary} include {folder / 'gavel.conf'}; }}\n"
    )


def _answers(port: int, context: ssl.SSLContext) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"https://localhost:{port}/healthz", verify=context).status_code == 200
    return False
