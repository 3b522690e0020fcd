"""Observers hear what the recorder records, also while the store refuses it."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream
from telemetry_fakes import watched

from foretool.fleet.telemetry.observing import Observer
from foretool.storage.records import Call, Discovery, Exposure, Miss, SessionRecord


class Notes(Observer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_call(self, call: Call) -> None:
        self.heard.append(f"call {call.tool} {call.outcome}")

    def on_miss(self, miss: Miss) -> None:
        self.heard.append(f"miss {miss.tool}")

    def on_discovery(self, discovery: Discovery) -> None:
        self.heard.append("discovery")

    def on_exposure(self, exposure: Exposure) -> None:
        self.heard.append(f"exposure {exposure.reason}")

    def on_session(self, session: SessionRecord) -> None:
        self.heard.append(f"session {session.client}")

    def on_session_end(self, key: str) -> None:
        self.heard.append("end")


@pytest.mark.anyio
async def test_observers_hear_what_happens() -> None:
    notes = Notes()
    async with watched(FakeUpstream("calc", ["add"]), observers=[notes, Observer()]) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        await at.stage.client.call_tool("calc__add", {})
        await at.stage.client.discover("add")
    expected = ["session test", "exposure list", "call calc__add ok", "miss calc__add", "discovery", "miss ", "end"]
    assert [each for each in notes.heard if each not in ("exposure hint", "exposure growth")] == expected
