"""Traces reach a collector that speaks OTLP over HTTP; without the setting nobody is asked for anything."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.processes import Member


class Collector(HTTPServer):
    """Keeps the names and routes of the spans that are posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[tuple[str, str, str]] = []

    def take(self, body: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {each.key: each.value.string_value for each in of_resource.resource.attributes}["service.name"]
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    values = {each.key: each.value.string_value for each in span.attributes}
                    self.spans.append((service, span.name, values.get("http.route", "")))


class Receiver(BaseHTTPRequestHandler):
    """One request of an exporter."""

    server: Collector

    def do_POST(self) -> None:
        """Take the spans."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") is None and self.path == "/v1/traces":
            self.server.take(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.full
def test_requests_to_the_service_are_traces_in_a_collector(collector: Collector, tmp_path: Path) -> None:
    settings = {"GAVEL_TELEMETRY_URL": f"http://127.0.0.1:{collector.server_port}"}
    with Member(tmp_path / "state", settings, "--api-only") as member:
        with member.client() as client:
            client.tiers()
        assert httpx.get(f"{member.url}/healthz", timeout=60).status_code == 200
    assert ("gavel", "GET /v1/tiers", "/v1/tiers") in collector.spans, collector.spans
    assert not [route for _, _, route in collector.spans if route == "/healthz"], "what monitors ask is not traced"
