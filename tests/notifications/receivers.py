"""Real receivers on this machine: an HTTP server and an SMTP server with STARTTLS and a login."""

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass
class Webhook:
    """An HTTP server that remembers what it got. It answers with `status`, and not before `may_answer` is set."""

    url: str = ""
    status: int = 200
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.requests]

    def jobs(self) -> list[str]:
        return [json.loads(body)["job"]["id"] for _, body in self.requests]


@contextmanager
def webhook(port: int = 0) -> Iterator[Webhook]:
    receiver = Webhook()
    receiver.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.may_answer.wait(60)
            receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Mailbox:
    """An SMTP server that remembers what it got, and refuses addresses of `nobody`."""

    port: int
    certificate: Path
    messages: list[Message] = field(default_factory=list)

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:
        if address.startswith("nobody@"):
            return "550 there is no such address"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.messages.append(message_from_bytes(envelope.content))
        return "250 OK"


class AnyPort(Controller):
    """On a free port."""

    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


USER, PASSWORD = "gavel", "a password of the mail server"


@contextmanager
def mailbox(folder: Path) -> Iterator[Mailbox]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    _make_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    box = Mailbox(port=0, certificate=certificate)

    def login(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        is_right = (given.login, given.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    controller = AnyPort(
        box,
        hostname="127.0.0.1",
        port=0,
        ready_timeout=20,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=login,
    )
    controller.start()
    box.port = controller.port
    try:
        yield box
    finally:
        controller.stop()


def _make_certificate(certificate: Path, key: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
