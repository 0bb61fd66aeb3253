"""The program of the demo's service: answers requests, counts them for Prometheus, and ends after its last answer.

Standard library only: `python replica.py PORT`.
"""

import http.server
import signal
import sys
import threading
import time

ANSWER_S = 0.02  # what a model would take
BACKLOG = 64
COUNTER = "demo_requests_total"


class Counted:
    """How many requests there were."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0

    def add(self) -> int:
        """Count one more; return how many there are."""
        with self._lock:
            self._count += 1
            return self._count

    def text(self) -> str:
        """Return the count in the text format of Prometheus."""
        return f"# TYPE {COUNTER} counter\n{COUNTER} {self._count}\n"


COUNTED = Counted()


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        """Answer a question, the check of readiness, or the metrics."""
        if self.path == "/":
            number = COUNTED.add()
            time.sleep(ANSWER_S)
            self._say(f"answer {number}\n")
        else:
            self._say(COUNTED.text() if self.path == "/metrics" else "ready\n")

    def _say(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


class Server(http.server.ThreadingHTTPServer):
    """Ends only when all that it was asked is answered."""

    daemon_threads = False
    request_queue_size = BACKLOG


def main(port: int) -> None:
    """Serve until SIGTERM."""
    server = Server(("127.0.0.1", port), Answer)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
