"""What plays the API server and the scheduler where there are none: as much of them as the backend uses.

Its answers are pinned to a transcript of the real ones (test_transcript.py): what is not in there, it does not promise.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gavel.backends.kubernetes.api import Object
from gavel.daemon.training_jobs.definition import FOLDER
from tests.backends.kubernetes.stand_in_rights import NOBODY, OPERATOR, SERVICE, Call, may, refusal, review
from tests.backends.kubernetes.stand_in_store import DEFINITIONS, KIND, Failure, Store

REVIEWS = "selfsubjectaccessreviews"
GROUPS = "podgroups"
WATCH_LIMIT_S = 30.0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def do_PATCH(self) -> None:
        self._serve(self._patch)

    def _serve(self, act: Any) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else {}
        steps = url.path.split("/")[4 if url.path.startswith("/apis/") else 3 :] or [""]
        self.folder = "/".join(url.path.split("/")[:4]) if url.path.startswith("/apis/") else ""
        try:
            self.namespace = steps[1] if steps[0] == "namespaces" and len(steps) > 2 else ""
            steps = steps[2:] if self.namespace else steps
            self.plural, name, self.part = [*steps, "", ""][:3]
            self.key = f"{self.namespace}/{name}" if self.namespace else name
            self._check_user(url.path)
            act(name)
        except Failure as failure:
            self._fail(failure)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _check_user(self, path: str) -> None:
        user = self.user = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if user not in (OPERATOR, NOBODY, SERVICE):
            raise Failure(401, "Unauthorized", "Unauthorized")
        if self.plural in ("", REVIEWS):  # any user may ask what there is, and what it may
            return
        name = self.key.rsplit("/", 1)[-1]
        is_watch = "watch" in self.query
        call = Call.of(self.command, path, self.plural, self.part, self.namespace, name=name, is_watch=is_watch)
        if user == SERVICE:
            self.store.calls.add(call)
        if not may(user, call, self.store.granted):
            raise Failure(403, "Forbidden", refusal(user, call, name))

    def _get(self, name: str) -> None:
        if not self.plural and self.folder != FOLDER:
            self._discover()
        elif self.plural in ("", KIND) and not self.store.objects[DEFINITIONS]:
            raise Failure(404, "", "the server could not find the requested resource")
        elif not self.plural:
            self._answer(200, {"kind": "APIResourceList", "resources": [{"name": KIND}]})
        elif self.plural == "namespaces":
            self._answer(200, {"kind": "Namespace", "metadata": {"name": name}})
        elif self.query.get("watch"):
            self._watch(int(self.query["resourceVersion"]))
        else:
            with self.store.lock:
                if name:
                    self._answer(200, self.store.shown(self.plural, self.key))
                    return
                stored = self.store.objects[self.plural].items()
                items = [each for key, each in stored if key.startswith(self.namespace) and self._is_selected(each)]
                listed = {"kind": "List", "metadata": {"resourceVersion": str(self.store.version)}, "items": items}
                self._answer(200, listed)

    def _discover(self) -> None:
        """What the server is, and what it serves of a group."""
        if not self.folder:
            self._answer(200, {"major": "1", "minor": "31+" if self.store.has_gates else "20"})
        elif self.folder in self.store.kinds:
            self._answer(200, {"kind": "APIResourceList", "resources": [{"name": GROUPS}]})
        else:
            raise Failure(404, "", "the server could not find the requested resource")

    def _is_selected(self, each: Object) -> bool:
        """Whether an event is about the object that a field selector names."""
        wanted = dict(part.split("=") for part in self.query.get("fieldSelector", "").split(",") if part)
        name = wanted.get("involvedObject.name")
        return not name or (each["involvedObject"]["name"] == name and each["type"] == wanted.get("type", each["type"]))

    def _post(self, _: str) -> None:
        if self.plural == REVIEWS:
            self._answer(201, review(self.user, self.body, self.store.granted))
            return
        with self.store.lock:
            name = self.body["metadata"]["name"]
            key = f"{self.namespace}/{name}" if self.namespace else name
            self._answer(201, self.store.create(self._stored(), key, self.body))

    def _stored(self) -> str:
        """Where the store has objects of this kind: PodGroups of two groups are two kinds."""
        if self.plural != GROUPS:
            return self.plural
        if self.folder not in self.store.kinds:
            raise Failure(404, "", "the server could not find the requested resource")
        return self.folder

    def _delete(self, _: str) -> None:
        with self.store.lock:
            self._answer(200, self.store.delete(self.plural, self.key, self.body.get("gracePeriodSeconds")))

    def _patch(self, _: str) -> None:
        kind = self.headers["Content-Type"]
        with self.store.lock:
            if self.plural == KIND:
                change = self.store.apply_status if "apply" in kind else self.store.merge_object
                self._answer(200, change(self.key, self.body))
            elif "apply" in kind:
                self._answer(200, self.store.apply(self.key, self.body, self.query["fieldManager"]))
            elif "json-patch" in kind:
                self._answer(200, self.store.patch(self.plural, self.key, self.body))
            else:
                self._answer(200, self.store.merge(self.plural, self.key, self.body, self.part))

    def _watch(self, since: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ends_at_s = time.monotonic() + WATCH_LIMIT_S
        while time.monotonic() < ends_at_s and not getattr(self.server, "is_over", False):
            with self.store.lock:
                new = [each for each in self.store.events if each[0] > since and each[1] == self.plural]
                if not new:
                    self.store.lock.wait(0.2)
                    continue
            for version, _, event, shown in new:
                self._chunk(json.dumps({"type": event, "object": shown}).encode() + b"\n")
                since = version
        self._chunk(b"")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _fail(self, failure: Failure) -> None:
        body = {"kind": "Status", "code": failure.code, "reason": failure.reason, "message": str(failure)}
        self._answer(failure.code, body)

    def _answer(self, code: int, body: Object) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    is_over = False


@contextmanager
def a_stand_in(folder: Path, store: Store | None = None) -> Iterator[Path]:
    """The stand-in serves on a port of its own; this is its kubeconfig, with a context for each user."""
    store = store or Store()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    ends = threading.Event()

    def schedule() -> None:
        while not ends.wait(0.01):
            with store.lock:
                store.schedule()

    threads = [threading.Thread(target=each, daemon=True) for each in (server.serve_forever, schedule)]
    for thread in threads:
        thread.start()
    users = (OPERATOR, NOBODY, SERVICE, "stranger")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "users": [{"name": name, "user": {"token": name}} for name in users],
        "contexts": [{"name": name, "context": {"cluster": "here", "user": name}} for name in users],
        "current-context": OPERATOR,
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.is_over = True
        ends.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()
