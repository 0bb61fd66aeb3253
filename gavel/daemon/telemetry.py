"""Traces by OpenTelemetry, sent to a collector in the background."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import TracerProvider

from gavel.errors import InvalidRequest


@contextmanager
def tracing(url: str) -> Iterator[TracerProvider | None]:
    """Where spans go until the end of the block, when the last are sent; no url: nowhere.

    A collector that does not answer loses spans and holds up nothing. Raises InvalidRequest if the extra is missing.
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
