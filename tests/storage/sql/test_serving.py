"""Running proxies see each other's lists and the states of their upstreams."""

from pathlib import Path

from msgspec.structs import replace
from stored_records import FAILURE, STATE

from foretool.storage.opening import open_store
from foretool.storage.records import ToolId, WorkingSet
from foretool.storage.store import Store


def test_only_a_later_epoch_replaces_a_working_set(store: Store) -> None:
    first = WorkingSet("default", 1, (ToolId("git__log"),), b'[{"name":"git__log", "x":1.0}]', 10.0, "v1")
    second = replace(first, epoch=2, listing=b"[]", tools=())
    assert store.serving.working_set("default") is None
    assert store.serving.save_working_set(first)
    assert not store.serving.save_working_set(replace(first, listing=b"a slower proxy's"))
    assert store.serving.working_set("default") == first
    assert store.serving.save_working_set(second)
    assert store.serving.working_set("default") == second


def test_others_see_the_states_of_upstreams_until_they_are_cleared(path: Path) -> None:
    down = replace(STATE, upstream="slack", state="down", era=None, last_error="exit code 1", stderr=())
    other = replace(STATE, pid=78, started_at=8.0)
    with open_store(path) as proxy, open_store(path) as status:
        for state in (replace(STATE, state="starting"), STATE, down, other):
            proxy.serving.save_state(state)
        assert status.serving.states() == [other, STATE, down]
        proxy.serving.clear_states(77, "slack")
        assert status.serving.states() == [other, STATE]
        proxy.serving.clear_states(77)
        assert status.serving.states() == [other]


def test_a_notice_is_told_once_for_all_proxies_of_a_store(store: Store) -> None:
    assert store.serving.tell_once("a change")
    assert not store.serving.tell_once("a change")
    assert store.serving.tell_once("another change")


def test_a_failure_is_known_by_its_entry_until_that_works(store: Store) -> None:
    edited = replace(FAILURE, entry="e2", times=1)
    for failure in (FAILURE, edited, replace(FAILURE, times=4, last_at=10.0)):
        store.serving.save_failure(failure)
    assert store.serving.failures() == [edited, replace(FAILURE, times=4, last_at=10.0)]
    store.serving.clear_failure("dead", "e1")
    assert store.serving.failures() == [edited]
    late = replace(FAILURE, last_at=edited.last_at + 30 * 86_400.0 + 1)
    store.serving.save_failure(late)  # of an entry that nobody has tried for so long nothing is kept
    assert store.serving.failures() == [late]
