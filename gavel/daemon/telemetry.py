"""Traces by OpenTelemetry, sent to a collector in the background."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import TracerProvider

from gavel.errors import InvalidRequest


@contextmanager
def tracing(url: str) -> Iterator[TracerProvider | None]:
    """Yield the provider that sends spans to the collector until the end of the block; None without a URL.

    Spans are lost while the collector does not answer; nothing waits for it. Raises InvalidRequest if the package
    `gavel[telemetry]` is not installed.
    """
    if not url:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise InvalidRequest("telemetry_url", "needs pip install 'gavel[telemetry]'") from missing
    provider = trace.TracerProvider(resource=Resource.create({"service.name": "gavel"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")))
    try:
        yield provider
    finally:
        provider.shutdown()
