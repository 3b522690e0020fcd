"""What somebody who may see one profile is shown of misses that rules and profiles caused."""

from __future__ import annotations

from msgspec.structs import replace
from stored_records import MISS, SESSION

from foretool.desk.page.viewers import MOST_DENIED, Viewer, count_misses, find_misses
from foretool.storage.opening import open_store
from foretool.storage.records import MissFilter, ToolId

OUTSIDE = "add 'secret' to the servers of profile 'p'"


def test_a_request_reads_the_newest_of_very_many_misses_one_by_one_and_no_more() -> None:
    viewer = Viewer("key", "p")
    with open_store(":memory:") as store:
        store.sessions.begin(SESSION)
        denied = [
            replace(MISS, at=float(at), tool=ToolId(f"secret__{at}"), cause="denied", change=OUTSIDE, call=0)
            for at in range(MOST_DENIED + 500)
        ]
        unknown = replace(MISS, at=0.5, tool=ToolId("nobody"), noticed="unknown_name", cause="unknown", call=0)
        store.calls.record([], [*denied, unknown])
        counts = count_misses(store, viewer, MissFilter())
        newest = find_misses(store, viewer, MissFilter(cause="unknown"), 10)
        found = find_misses(store, viewer, MissFilter(cause="denied"), 10)
    assert sum(each.count for each in counts) == MOST_DENIED + 1
    assert [each.tool for each in newest] == [f"secret__{MOST_DENIED + 499 - at}" for at in range(10)]
    assert {each.cause for each in (*counts, *newest)} == {"unknown"} and found == []
