"""Rows are counted, and the old log is deleted except for what misses refer to."""

import os

from msgspec.structs import replace
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS, SESSION, fill_store

from foretool.storage.records import Prompt, Statistics, ToolId
from foretool.storage.stores import Store


def test_statistics_count_every_kind_of_record(store: Store) -> None:
    fill_store(store)
    store.calls.record([CALL], [MISS])
    store.sessions.add_exposure(EXPOSURE)
    store.discoveries.add(DISCOVERY)
    size = store.statistics().file_bytes
    assert store.statistics() == Statistics(1, 2, 2, 1, 1, 1, 2, 1, 1, size)
    assert size % os.sysconf("SC_PAGE_SIZE") == 0


def test_pruning_deletes_the_old_log_and_keeps_misses_with_what_they_refer_to(store: Store) -> None:
    for key, started_at in [("old", 1.0), ("missed", 2.0), ("s1", 10.0)]:
        store.sessions.begin(replace(SESSION, key=key, started_at=started_at))
    for at in (1.0, 2.0, 3.0, 100.0):
        store.sessions.add_exposure(replace(EXPOSURE, session="s1", at=at, tools=(ToolId(f"at {at}"),)))
        store.discoveries.add(replace(DISCOVERY, session="s1", at=at))
    store.calls.record(
        [replace(CALL, session="old", at=1.0), replace(CALL, session="missed", at=2.0), replace(CALL, at=100.0)],
        [replace(MISS, at=2.0, session="missed", call=2, exposure=2, discovery=3)],
    )
    # One call; exposures 1 and 3 with their lists; discoveries 1 and 2; the session that has nothing left.
    assert store.prune_log(50.0) == 1 + 2 + 2 + 2 + 1
    assert [call.id for call in store.calls.recent(9)] == [3, 2]
    assert [exposure.id for exposure in store.sessions.exposures("s1")] == [2, 4]
    assert [discovery.id for discovery in store.discoveries.recent(9)] == [4, 3]
    assert [session.key for session in store.sessions.recent()] == ["s1", "missed"]
    assert len(store.calls.misses(0)) == 1
    assert store.prune_log(50.0) == 0


def test_pruning_deletes_old_prompts_except_for_the_newest(store: Store) -> None:
    for at in (1.0, 2.0, 3.0):
        store.tasks.add_prompt(Prompt(at, f"{at}"))
    assert store.prune_log(10.0) == 2
    assert [each.at for each in store.tasks.prompts()] == [3.0]


def test_no_id_is_used_twice_after_pruning_everything(store: Store) -> None:
    store.calls.record([CALL, CALL])
    store.prune_log(1e12)
    store.calls.record([CALL])
    assert [call.id for call in store.calls.recent(9)] == [3, 2]
