"""A running proxy with telemetry, from its config on."""

from __future__ import annotations

import json
import logging
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fakes import config_of
from listening import over_http
from requirements import requirement
from served import Served, write_config
from telemetry_fakes import Collector, attributes_of, collecting

from foretool.fleet import telemetry
from foretool.fleet.telemetry.watching import TelemetryWatch

SUPPORT = Path(__file__).parents[2] / "support"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def environment(address: str, **more: str) -> dict[str, str]:
    return {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "100", **more}


def config_in(folder: Path, **settings: Any) -> Path:
    where = {"OTEL_EXPORTER_OTLP_ENDPOINT": "${OTEL_EXPORTER_OTLP_ENDPOINT}"}
    weather = {"command": sys.executable, "args": [str(SUPPORT / "traced_upstream.py")], "env": where}
    return write_config(folder, {"weather": weather}, **settings)


def tree(collector: Collector) -> list[str]:
    """The spans of the one trace, each below its parent."""
    spans = [(name, span) for name, span in collector.spans if span.trace_id.hex() == TRACE]
    lines: list[str] = []

    def add(parent: str, depth: int) -> None:
        for service, span in spans:
            if span.parent_span_id.hex() == parent:
                lines.append(f"{'  ' * depth}{service}: {span.name}")
                add(span.span_id.hex(), depth + 1)

    add(PARENT.split("-")[2], 0)
    return lines


EXPECTED = [
    "foretool: tools/call weather__forecast",
    "  foretool: tools/call forecast",
    "    weather: tools/call forecast",
]


@pytest.mark.slow
@requirement("telemetry:trace")
def test_a_running_proxy_and_an_sdk_server_are_in_one_trace(tmp_path: Path, servings: list[Served]) -> None:
    with collecting() as (collector, address):
        proxy = Served(config_in(tmp_path, telemetry="on"), "--alone", env=environment(address))
        servings.append(proxy)
        proxy.initialize()
        call = {"name": "weather__forecast", "arguments": {"city": "Oslo"}, "_meta": {"traceparent": PARENT}}
        assert proxy.ask("tools/call", call)["content"][0]["text"] == "rain in Oslo"
        collector.wait_for(lambda: len(tree(collector)) == 3)
        assert proxy.leave() == 0
        collector.wait_for(lambda: "mcp.server.operation.duration" in collector.metrics)
        assert tree(collector) == EXPECTED
        assert "mcp.client.operation.duration" in collector.metrics
        assert "Oslo" not in str([span for name, span in collector.spans if name == "foretool"])


@pytest.mark.slow
@requirement("telemetry:metrics")
def test_over_http_headers_count_and_metrics_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as (collector, address):
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        config = config_in(tmp_path, telemetry="full", metrics=True, insecure_loopback=True, bind="127.0.0.1:0")
        with over_http(config) as where:
            base = where.removesuffix("/mcp")
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            _, session = post(where, "initialize", hello, {})
            call = {"name": "weather__forecast", "arguments": {"city": "Oslo"}}
            post(where, "tools/call", call, {"mcp-session-id": session, "traceparent": PARENT})
            with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
                said = answer.read().decode()
        collector.wait_for(lambda: len(tree(collector)) == 3)
        assert tree(collector) == EXPECTED
        (ours,) = [span for name, span in collector.spans if span.kind == 3 and span.trace_id.hex() == TRACE]
        assert json.loads(attributes_of(ours)["gen_ai.tool.call.arguments"]) == {"city": "Oslo"}
    assert 'foretool_calls_total{outcome="ok",server="weather"} 1.0' in said


def post(where: str, method: str, params: Any, headers: dict[str, str]) -> tuple[str, str]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    asked = urllib.request.Request(where, body, {**kinds, **headers})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode(), answer.headers.get("mcp-session-id", "")


@pytest.mark.slow
@requirement("telemetry:collector")
def test_a_silent_collector_holds_up_neither_calls_nor_the_end(tmp_path: Path, servings: list[Served]) -> None:
    with collecting() as (collector, address):
        collector.stuck.set()
        echo = {"command": sys.executable, "args": [str(SUPPORT / "echo_upstream.py")]}
        config = write_config(tmp_path, {"echo": echo}, telemetry="on")
        proxy = Served(config, "--alone", env=environment(address))
        servings.append(proxy)
        proxy.initialize()
        for _ in range(20):
            assert proxy.call("echo__echo", {"text": "hi"}) == '{"text": "hi"}'
        assert proxy.leave() == 0
        told = [line for line in proxy.errors if "telemetry" in line and "warning" in line.lower()]
    assert len(told) == 1, proxy.errors


@pytest.mark.parametrize(
    ("settings", "module", "said"),
    [
        ({"telemetry": "on"}, "opentelemetry.sdk", "telemetry: opentelemetry"),
        ({"metrics": True}, "prometheus_client", "metrics: prometheus_client is not installed; "),
    ],
    ids=["otel", "metrics"],
)
def test_without_the_package_one_line_says_what_to_install(
    settings: dict[str, Any], module: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("sending", "prometheus"):
        monkeypatch.delitem(sys.modules, f"foretool.fleet.telemetry.{name}", raising=False)
        monkeypatch.delattr(telemetry, name, raising=False)
    for name in [each for each in sys.modules if each.startswith(module)] or [module]:
        monkeypatch.setitem(sys.modules, name, None)
    with caplog.at_level(logging.ERROR):
        watch = TelemetryWatch(config_of(**settings), http=True)
        watch.end()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(said) and "pip install" in line
    assert watch.http["metrics"] is None


def test_an_environment_that_cannot_be_used_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with caplog.at_level(logging.ERROR):
        TelemetryWatch(config_of(telemetry="on"), http=False).end()
    assert [each.getMessage() for each in caplog.records] == [
        "telemetry: nothing is sent: OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; only http/protobuf is sent"
    ]
