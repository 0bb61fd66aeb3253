"""A git server over HTTP on this machine: `git http-backend`, with or without a password, and as plain files."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PASSWORD = "a-long-git-token"


@dataclass
class GitServer:
    """`password`: what it asks for; `redirects_to`: where it sends everybody; `requests`: the paths it was asked."""

    root: Path
    port: int = 0
    password: str = ""
    redirects_to: str = ""
    delay: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def packs_sent(self) -> int:
        return sum("git-upload-pack" in each and "service=" not in each for each in self.requests)


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            server.requests.append(self.path)
            server.delay.wait(60)
            if server.redirects_to:
                self.send_response(302)
                self.send_header("Location", server.redirects_to + self.path)
                self.end_headers()
                return
            if server.password and not self._is_allowed():
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            self._run(path, query)

        do_POST = do_GET

        def _is_allowed(self) -> bool:
            scheme, _, given = self.headers.get("Authorization", "").partition(" ")
            user, _, password = base64.b64decode(given).decode().partition(":") if scheme == "Basic" else ("", "", "")
            server.users.append(user)
            return password == server.password

        def _run(self, path: str, query: str) -> None:
            length = int(self.headers.get("Content-Length", 0))
            given = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(server.root), "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }  # fmt: skip
            body = self._body() if self.headers.get("Transfer-Encoding") == "chunked" else self.rfile.read(length)
            command = ["git", "http-backend"]
            done = subprocess.run(command, input=body, env=given, capture_output=True, timeout=60, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(parts)

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


def _files(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(server.root))

        def log_message(self, *arguments: Any) -> None:
            pass

    return Files


@contextmanager
def git_server(root: Path, *, is_plain: bool = False) -> Iterator[GitServer]:
    """A server of the bare repositories below `root`; `is_plain`: one that knows nothing of git."""
    served = GitServer(root)
    served.delay.set()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _files(served) if is_plain else _handler(served))
    http.handle_error = lambda *_: None  # type: ignore[method-assign]  # who asked has gone
    served.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        served.delay.set()
        http.shutdown()
        thread.join()
        http.server_close()
