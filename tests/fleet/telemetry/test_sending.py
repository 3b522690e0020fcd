"""What goes to a collector, and what a collector that is away or silent costs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from requirements import requirement
from telemetry_fakes import attributes_of, collecting

from foretool.fleet.telemetry import sending
from foretool.fleet.telemetry.sending import Sender, Unsuitable


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)


def test_spans_and_metrics_arrive_and_name_their_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as (collector, address):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        sender = Sender()
        sender.tracer.start_span("one", attributes={"a": 1}).end()
        sender.meter.create_counter("count").add(1)
        sender.end()
        ((service, span),) = collector.spans
    assert (service, span.name, attributes_of(span)) == ("foretool", "one", {"a": 1})
    assert set(collector.metrics) == {"count"}
    assert sender.address == address


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,team=a")]
)
def test_the_variables_name_the_service(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as (collector, address):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv(variable, value)
        sender = Sender()
        sender.tracer.start_span("one").end()
        sender.end()
    assert collector.services == {"mine"}


def test_one_of_the_two_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as (collector, address):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        sender = Sender()
        sender.tracer.start_span("one").end()
        sender.meter.create_counter("count").add(1)
        sender.end()
    assert (collector.spans, set(collector.metrics)) == ([], {"count"})


@pytest.mark.parametrize(
    "wrong", [{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"OTEL_METRIC_EXPORT_INTERVAL": "-5"}], ids=str
)
def test_what_cannot_be_done_is_said(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Unsuitable):
        Sender()


@requirement("telemetry:collector")
def test_a_collector_that_is_away_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as (_, address):
        pass  # nobody listens there any more
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr(sending, "FLUSH_S", 30.0)
    sender = Sender()
    with caplog.at_level(logging.WARNING):
        for number in range(5000):
            sender.tracer.start_span(f"span {number}").end()
        sender.end()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("telemetry: ") and "calls go on" in line and "\n" not in line


@requirement("telemetry:collector")
def test_a_collector_that_never_answers_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as (collector, address):
        collector.stuck.set()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setattr(sending, "FLUSH_S", 0.2)
        sender = Sender()
        sender.tracer.start_span("one").end()
        with caplog.at_level(logging.WARNING):
            sender.end()
        assert collector.spans == []
    assert [each.getMessage() for each in caplog.records] == [
        "telemetry: the collector did not take the rest within 0.2 s; calls go on, and what is not taken is dropped"
    ]


def test_a_batch_with_strange_text_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from foretool.fleet.telemetry.tracing import shorten

    with collecting() as (collector, address):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        sender = Sender()
        sender.tracer.start_span(shorten("a\ud800b\x00"), attributes={"x": shorten("\udfff")}).end()
        sender.end()
        ((_, span),) = collector.spans
    assert span.name == "a?b "
