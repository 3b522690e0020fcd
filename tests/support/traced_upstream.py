"""A server on the MCP SDK for Python, which reads trace contexts by itself and sends its spans to a collector."""

import logging

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

logging.disable()
provider = TracerProvider(resource=Resource({"service.name": "weather"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
server = MCPServer("weather")


@server.tool()
def forecast(city: str) -> str:
    """Tell the weather of tomorrow in a city."""
    return f"rain in {city}"


server.run()
