"""Whole kinds of records come out page by page, each record once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from stored_records import CALL

from foretool.storage.records import Exposure, Prompt
from foretool.storage.sql import exporting
from foretool.storage.stores import Store


@pytest.mark.parametrize("page", [1, 2, 100])
def test_pages_of_every_size_hold_each_record_once(page: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PAGE", page)
    store.calls.record([replace(CALL, at=float(at), tool=f"t{at}") for at in range(7)])
    store.sessions.add_exposure(Exposure("s", 3.0, "frozen", 1, (), 9, "list"))
    store.tasks.add_prompt(Prompt(2.0, "do it"))
    assert [each.at for each in store.exporting.calls(2.0, 6.0)] == [2.0, 3.0, 4.0, 5.0]
    assert list(store.exporting.calls(0.0, 9.0)) == store.calls.recent(-1)[::-1]
    assert [each.text for each in store.exporting.call_events(0.0, 9.0)] == [f"t{at}" for at in range(7)]
    assert [each.tokens for each in store.exporting.exposures(0.0, 9.0)] == [9]
    assert list(store.exporting.misses(0.0, 9.0)) == list(store.exporting.task_events(0.0, 9.0)) == []
    assert [each.text for each in store.exporting.prompts(0.0, 9.0)] == ["do it"]
