"""Transports to upstreams: stdio, streamable HTTP and SSE. Each turns bytes into messages of one upstream."""
